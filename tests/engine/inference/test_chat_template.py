"""Chat templates: equal to transformers where they are honest, harmless where they are not."""

from __future__ import annotations

import os
import time

import pytest

from engine.errors import TemplateError
from engine.inference import template_process
from engine.inference.chat_template import (
    MAX_RENDERED_CHARS,
    MAX_TEMPLATE_CHARS,
    SandboxedTemplate,
)
from engine.inference.template_process import TemplateProcess, template_renderer
from engine.inference.weights.tiny import TINY_CHAT_TEMPLATE
from tests.engine.inference.tokenizers_for_tests import default_backend

MESSAGES = [
    {"role": "system", "content": "Be <brief> & 'kind'."},
    {"role": "user", "content": " What is 2 + 2? 中🙂 "},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Sure?\n"},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

HONEST = {
    "ChatML": TINY_CHAT_TEMPLATE,
    "takes turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim + '\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' + (system if loop.first and system is defined else '') + message.content
            + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}""",
    "namespace, tojson, loop controls": """
{%- set ns = namespace(count=0, last='') -%}
{% for m in messages %}
  {% if m.role == 'system' %}{% continue %}{% endif %}
  {% set ns.count = ns.count + 1 %}
  {% set ns.last = m.content %}
{{ m | tojson }}
{% if ns.count > 1 %}{% break %}{% endif %}
{% endfor %}
{{ ns.count }}{{ ns.last | tojson(indent=2) }}{{ dict(a=[1, 2.5, none, true]) | tojson }}
{% for i in range(3) %}{{ i }},{% endfor %}
{% if tools %}tools{% elif documents is none %}no documents{% endif %}""",
    "generation tag": """{% for m in messages %}
    {% if m.role == 'assistant' %}
        {% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}
    {% else %}
{{ m.role }}: {{ m.content }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}assistant:{% endif %}""",
    "macro": """{% macro turn(m, upper=false) %}<{{ m.role | upper if upper else m.role }}>
{{ m['content'].strip().replace('<', '(').split('?') | join('!') }}{% endmacro %}
{% for m in messages if m.role != 'system' %}{{ turn(m, upper=loop.last) }}{% endfor %}""",
}


@pytest.fixture(scope="module")
def transformers_renderer():
    """transformers with a word-level tokenizer of no importance; only its rendering is used."""
    from transformers import PreTrainedTokenizerFast

    backend, _ = default_backend()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)

    def render(template: str, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        text = tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
        assert isinstance(text, str)
        return text

    return render


@pytest.mark.parametrize("template", HONEST.values(), ids=HONEST.keys())
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_renders_what_transformers_renders(template, add_generation_prompt, transformers_renderer):
    ours = SandboxedTemplate(template).render(
        MESSAGES, SPECIAL, add_generation_prompt=add_generation_prompt
    )
    assert ours == transformers_renderer(template, MESSAGES, add_generation_prompt)
    assert len(ours) > 20


def test_the_default_models_template(transformers_renderer):
    _, template = default_backend()
    for messages in (MESSAGES, MESSAGES[1:2]):
        ours = SandboxedTemplate(template).render(messages, SPECIAL, add_generation_prompt=True)
        assert ours == transformers_renderer(template, messages, True)


def test_today(transformers_renderer):
    template = "{{ strftime_now('%Y-%m-%d') }}"
    for _ in range(2):  # midnight may fall between the two
        ours = SandboxedTemplate(template).render(MESSAGES, {}, add_generation_prompt=False)
        if ours == transformers_renderer(template, MESSAGES, False):
            return
    pytest.fail("the dates differ")


def render(template: str) -> str:
    return SandboxedTemplate(template).render(MESSAGES, SPECIAL, add_generation_prompt=True)


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ (''|attr('__class__')).__mro__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ dict.__subclasses__() }}",
    "{{ range.__class__ }}{{ range.__globals__['json'] }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ joiner.__init__.__globals__.os }}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ ''.__class__.__base__ and messages.append(1) }}",
    "{{ messages.append({'role': 'user', 'content': 'x'}) }}",
    "{{ messages[0].update(role='user') }}{{ messages[0].clear() }}",
    "{% set ns = namespace(__class__='x') %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.popen('id').read() }}",
    "{% extends 'base.html' %}",
    "{{ ''|xyz }}",
    "{% for i in range(10001) %}{% endfor %}",
    "{{ range(1, 10 ** 9) | list }}",
    "{{ messages | tojson(indent=100000) }}",
    "{{ 1 // 0 }}",
    "{{ undefined_thing.attribute }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
]


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_cannot_reach_out(template):
    with pytest.raises(TemplateError) as caught:
        render(template)
    assert len(caught.value.message) < 200
    assert "passwd" not in caught.value.message


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''|attr('__class__') }}",
        "{{ '{a.__class__}'.format_map(dict(a=1)) }}",
        "{{ strftime_now.__globals__ }}",
        "{{ messages.__class__ }}{{ self.__dict__ }}",
    ],
)
def test_what_python_keeps_inside_reads_as_nothing(template):
    assert render(template) == ""


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}", "{{", "{% for x in %}{% endfor %}", "{% endfor %}", "{{ 'a }}",
        "(" * 100 + "{{ " + "(" * 20_000 + " }}", "{{ " + "not " * 15_000 + "1 }}",
        "{% if 1 %}" * 5_000, "x" * (MAX_TEMPLATE_CHARS + 1),
    ],
)  # fmt: skip
def test_invalid_templates(template):
    with pytest.raises(TemplateError):
        render(template)


def test_a_template_may_have_the_full_length():
    assert render("x" * MAX_TEMPLATE_CHARS) == "x" * MAX_TEMPLATE_CHARS


def test_output_is_capped():
    kilobyte = "y" * 1_024
    loops = MAX_RENDERED_CHARS // 1_024
    template = "{% for i in range(COUNT) %}" + kilobyte + "{% endfor %}"
    assert len(render(template.replace("COUNT", str(loops)))) == MAX_RENDERED_CHARS
    with pytest.raises(TemplateError, match=str(MAX_RENDERED_CHARS)):
        render(template.replace("COUNT", str(loops + 1)))
    with pytest.raises(TemplateError, match=str(MAX_RENDERED_CHARS)):
        render("{% for i in range(9999) %}{% for j in range(9999) %}zzzzzzzzzz{% endfor %}"
               "{% endfor %}")  # fmt: skip


def test_a_refusal_of_the_template_is_told_as_one():
    with pytest.raises(TemplateError, match="take turns"):
        SandboxedTemplate(HONEST["takes turns"]).render(
            [MESSAGES[1], MESSAGES[3]], SPECIAL, add_generation_prompt=True
        )
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception('a secret ' + messages[0].content) }}")
    assert "secret" not in caught.value.message


def test_the_callers_messages_stay_as_they_are():
    messages = [dict(message) for message in MESSAGES]
    SandboxedTemplate(TINY_CHAT_TEMPLATE).render(messages, SPECIAL, add_generation_prompt=True)
    assert messages == MESSAGES


class TestProcess:
    """A foreign template renders in a child that can be killed."""

    def test_pinned_templates_render_in_place_and_others_do_not(self):
        _, default_template = default_backend()
        for template in (default_template, TINY_CHAT_TEMPLATE):
            assert isinstance(template_renderer(template), SandboxedTemplate)
        for template in (TINY_CHAT_TEMPLATE + " ", "", "\ud800"):
            assert isinstance(template_renderer(template), TemplateProcess)

    @pytest.mark.parametrize("template", HONEST.values(), ids=HONEST.keys())
    def test_the_child_renders_the_same(self, template):
        child = TemplateProcess(template)
        here = SandboxedTemplate(template)
        for messages in (MESSAGES, MESSAGES[1:2]):
            for add in (True, False):
                expected = here.render(messages, SPECIAL, add_generation_prompt=add)
                assert child.render(messages, SPECIAL, add_generation_prompt=add) == expected
        child.close()

    def test_one_child_serves_many_renderings_and_refusals(self):
        child = TemplateProcess(HONEST["takes turns"])
        for _ in range(3):
            assert child.render(MESSAGES, SPECIAL, add_generation_prompt=True)
            with pytest.raises(TemplateError, match="take turns"):
                child.render([MESSAGES[1], MESSAGES[3]], SPECIAL, add_generation_prompt=True)
        process = child._child
        assert child.render(MESSAGES, SPECIAL, add_generation_prompt=True)
        assert child._child is process
        child.close()
        child.close()

    def test_the_largest_conversation_goes_through(self):
        child = TemplateProcess("{{ messages[0].content }}")
        content = "\U0001f642" * 32_768
        messages = [{"role": "user", "content": content}]
        assert child.render(messages, {}, add_generation_prompt=True) == content
        child.close()

    @pytest.mark.parametrize(
        "template",
        [
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
            "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
            "{{ 'a'.center(10 ** 11) }}",
            "{{ (messages | length) ** (10 ** 9) }}",
            "{{ [0] * 10 ** 11 }}",
        ],
        ids=["time", "doubling", "width", "power", "list"],
    )
    def test_time_and_memory_are_limited(self, template, monkeypatch):
        monkeypatch.setattr(template_process, "RENDER_SECONDS", 0.5)
        child = TemplateProcess(template)
        with pytest.raises(TemplateError):
            child.render(MESSAGES, {}, add_generation_prompt=True)
        start = time.perf_counter()
        with pytest.raises(TemplateError):  # and again, with a fresh child if need be
            child.render(MESSAGES, {}, add_generation_prompt=True)
        assert time.perf_counter() - start < 0.5 + template_process.START_SECONDS
        child.close()

    def test_a_template_that_does_not_compile_says_so_each_time(self):
        child = TemplateProcess("{% if %}")
        for _ in range(2):
            with pytest.raises(TemplateError, match="not valid"):
                child.render(MESSAGES, {}, add_generation_prompt=True)
        child.close()

    def test_a_child_that_died_is_replaced(self):
        child = TemplateProcess("fine")
        assert child.render(MESSAGES, {}, add_generation_prompt=True) == "fine"
        assert child._child is not None
        child._child._process.kill()
        child._child._process.wait()
        with pytest.raises(TemplateError, match="time or memory"):
            child.render(MESSAGES, {}, add_generation_prompt=True)
        assert child.render(MESSAGES, {}, add_generation_prompt=True) == "fine"
        child.close()

    @pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")
    def test_the_child_ends_with_its_owner(self):
        child = TemplateProcess("fine")
        child.render(MESSAGES, {}, add_generation_prompt=True)
        assert child._child is not None
        process = child._child._process
        assert process.poll() is None
        del child
        assert process.poll() is not None
