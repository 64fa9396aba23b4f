// Puts a file on the reader's disk.

/** Downloads `blob` as `name`. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The download has taken its own hold of the data by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
