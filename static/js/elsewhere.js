export function mountElsewhere() {
  return () => {};
}
