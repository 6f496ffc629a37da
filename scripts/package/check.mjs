/** What a module must not have in it before it is released. Pure: bytes in, sentences out. */

/** Sentences about what is wrong; `places` are directories of the machine that built it. */
export function flaws(bytes, { glibc, places }) {
  const text = bytes.toString('latin1')
  const found = []
  const needs = glibcOf(text)
  if (glibc !== null && newer(needs, glibc)) found.push(`it needs glibc ${needs}, and the package promises ${glibc}`)
  for (const place of places) {
    const at = text.indexOf(place)
    if (at >= 0) found.push(`it names a directory of this machine: ${printable(text.slice(at, at + 120))}`)
  }
  return found
}

/** The newest version of glibc that a module asks for; null when it asks for none. */
export function glibcNeeded(bytes) {
  return glibcOf(bytes.toString('latin1'))
}

function glibcOf(text) {
  const versions = [...text.matchAll(/\0GLIBC_(\d+(?:\.\d+)+)(?=\0)/g)].map(([, version]) => version)
  return versions.reduce((newest, one) => (newer(one, newest) ? one : newest), null)
}

function newer(version, than) {
  if (version === null || than === null) return version !== null
  const [a, b] = [version, than].map((v) => v.split('.').map(Number))
  return a[0] > b[0] || (a[0] === b[0] && (a[1] ?? 0) > (b[1] ?? 0))
}

const printable = (text) => text.replace(/[^\x20-\x7e].*$/s, '')
