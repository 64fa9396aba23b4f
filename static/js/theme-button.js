// The button that goes from the system's theme to light to dark; on every page, by itself.

const button = document.getElementById("theme");
const theme = window.firstTokenTheme;

function show() {
  button.textContent = button.dataset[theme.current];
}

button.addEventListener("click", () => {
  theme.next();
  show();
});
button.hidden = false;
show();
