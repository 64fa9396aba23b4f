// A knob comes with values that suit it.

for (const choice of document.querySelectorAll("select[data-values]")) {
  const values = document.getElementById(choice.dataset.values);
  choice.addEventListener(
    "input",
    () => {
      values.value = choice.selectedOptions[0].dataset.usual;
    },
    true,
  );
}
