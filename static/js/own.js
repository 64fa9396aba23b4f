// A model or a device of one's own: its fields come with the choice, and a file is read here, in
// the browser, into the field beside it.

const MOST_BYTES = 1 << 20;

for (const fields of document.querySelectorAll("fieldset[data-own]")) {
  const choice = document.getElementById(fields.dataset.own);
  choice.addEventListener(
    "input",
    () => {
      const own = choice.value === "own";
      fields.hidden = !own;
      fields.disabled = !own;
    },
    true,
  );
}

/** The same JSON without its white space: the address has to carry it. */
function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text; // the server says what is wrong with it
  }
}

async function read(input) {
  const field = document.getElementById(input.dataset.into);
  const [file] = input.files;
  if (!file || file.size > MOST_BYTES) return;
  const text = await file.text();
  field.value = field.name === "trace" ? text : compact(text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

for (const input of document.querySelectorAll("input[data-into]")) {
  input.closest(".from-file").hidden = false;
  input.addEventListener("change", (event) => {
    event.stopPropagation(); // the field that it fills asks the server
    read(input);
  });
}

for (const field of document.querySelectorAll("textarea.json:not([name=trace])")) {
  field.addEventListener("change", () => {
    field.value = compact(field.value);
  });
}
