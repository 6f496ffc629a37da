/** Lists the failed tests of a suite at the end of `npm test`. */

/** Names shown per suite: a server that does not start fails thousands of cases, and would hide the other suites. */
const NAMES_MAX = 60
const NAME_CHARS_MAX = 300

/** One line per failed test of a suite: `  suite     name`. `failed` is their number, `names` the known ones. */
export function failureLines(suite, failed, names) {
  // Line feeds in a name or a message would look like another test.
  const short = (name) => name.replaceAll(/\s+/g, ' ').trim().slice(0, NAME_CHARS_MAX)
  const lines = names.slice(0, NAMES_MAX).map(short)
  const more = Math.max(names.length, failed) - lines.length
  if (lines.length === 0) lines.push(`${failed} without a name: see its lines above`)
  else if (names.length > NAMES_MAX) lines.push(`… and ${more} more: see its lines above`)
  else if (more > 0) lines.push(`… and ${more} without a name: see its lines above`)
  return lines.map((line) => `  ${suite.padEnd(10)}${line}`)
}
