// Before anything is drawn, so that no page flashes in the other colours.
try {
  const chosen = localStorage.getItem('nereid-theme')
  if (chosen !== null) document.documentElement.dataset.theme = chosen
} catch {
  // Some browsers keep nothing for pages from a disk.
}
