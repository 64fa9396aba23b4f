"""Texts of the comparison of forms, which two lessons have: of the cache, and of the weights."""

from __future__ import annotations

from collections.abc import Mapping

from webapp.i18n import N_

VARIANT_TEXTS: Mapping[str, str | tuple[str, str]] = {
    "variants.starting": N_("{name}: asking the engine…"),
    "variants.opening": N_("{name}: this form of the model is being opened."),
    "variants.quantizing": N_("{name}: the weights are being quantized, {share} done."),
    "variants.loading": N_("{name}: the weights are being loaded, {share} done."),
    "variants.running": (N_("{name}: {n} token."), N_("{name}: {n} tokens.")),
    "variants.judging": N_("{name}: comparing its next-token distributions…"),
    "variants.stopped": N_("Stopped."),
    "variants.done": (N_("Done: {n} form measured."), N_("Done: {n} forms measured.")),
    "variants.form": N_("form"),
    "variants.picture": N_("to one scale"),
    "variants.weights": N_("weights"),
    "variants.cache": N_("cache at the end"),
    "variants.each": N_("each"),
    "variants.bits": N_("{bits} bits"),
    "variants.itl": N_("ITL"),
    "variants.kl": N_("KL, nats"),
    "variants.top": N_("same first choice"),
    "variants.parts": N_("differs from token {n} on: {text}"),
    "variants.parting": N_("Its own text differs from A's from token {n} on."),
    "variants.same": N_("Its own text is the same as A's, token for token."),
    "variants.first": N_("The others are compared with this one."),
    "variants.bars": N_("KL at every token, {name}"),
    "variants.kept": N_("after token {n}, {piece}: KL {kl} nats, same first choice"),
    "variants.moved": N_("after token {n}, {piece}: KL {kl} nats, another first choice"),
    "variants.worst": N_("Furthest {said}"),
    "variants.table": N_("The same as a table"),
    "variants.position": N_("position"),
    "variants.token": N_("token"),
    "variants.topToken": N_("same first choice?"),
    "variants.yes": N_("yes"),
    "variants.no": N_("no"),
}
