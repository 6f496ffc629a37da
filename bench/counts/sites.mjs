/** Names for stacks: which of our functions, or of whose crate, asked for an allocation or a copy. */
import { execFileSync } from 'node:child_process'

/** The standard library asks on behalf of others: a stack is named after the first frame that is not its. */
const isStandard = (path) => /\/rustc\/|\/library\/(alloc|core|std)\/|\/rustlib\/|^\?\?/.test(path)
const crateOf = (path) =>
  /\/registry\/src\/[^/]+\/([^/]+)\//.exec(path)?.[1] ?? /\/?crates\/([^/]+)\//.exec(path)?.[1] ?? '?'
const isOwn = (path) => !path.includes('/registry/') && /(^|\/)crates\//.test(path)

/** `core::ptr::drop_in_place::<http::Foo>` and its like, without what nobody reads. */
function tidy(name) {
  let out = name
  for (let before = ''; before !== out;) {
    before = out
    out = out.replace(/<[^<>]*>/g, '')
  }
  return (
    out
      .replace(/::\{[^}]*\}/g, '')
      .replace(/::h[0-9a-f]{16}$/, '')
      .replace(/^:+|:+$/g, '')
      .split('::')
      .slice(-3)
      .join('::') || name.slice(0, 80)
  )
}

/**
 * addr2line prints, per address, `0x…` and then a pair of lines (function, file:line) per inlined frame, innermost
 * first.
 */
export function parseFrames(text) {
  const out = new Map()
  let frames = []
  const lines = text.split('\n')
  for (let i = 0; i < lines.length; i += 1) {
    if (/^0x[0-9a-f]+$/.test(lines[i])) out.set(Number(lines[i]), (frames = []))
    else if (i + 1 < lines.length)
      frames.push({ name: lines[i], at: lines[(i += 1)].replace(/ \(discriminator.*$/, '') })
  }
  return out
}

/**
 * Groups stacks by who asked: the first frame outside the standard library, and the first of our crates above it.
 *
 * @param lists lists of what the shim saw, with `calls` and `bytes` per request; all are looked up at once, which takes
 * a second
 * @returns for each list `{ kind, by, under, calls, bytes }`, most calls first
 */
export function families(lists, library) {
  const addresses = [...new Set(lists.flat().flatMap((s) => s.frames))].map((a) => `0x${a.toString(16)}`)
  if (addresses.length === 0) return lists.map(() => [])
  const options = {
    input: `${addresses.join('\n')}\n`,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['pipe', 'pipe', 'pipe'],
  }
  const known = parseFrames(execFileSync('addr2line', ['-e', library, '-a', '-f', '-i', '-C'], options))
  return lists.map((sites) => group(sites, known))
}

export function group(sites, known) {
  const groups = new Map()
  for (const site of sites) {
    const frames = site.frames.flatMap((a) => known.get(a) ?? [])
    const asked = frames.find((f) => !isStandard(f.at))
    // On whose behalf: the nearest frame of ours in another crate than the one that asked.
    const own = frames.find((f) => isOwn(f.at) && (asked === undefined || crateOf(f.at) !== crateOf(asked.at)))
    const label = (f) => (f === undefined ? 'unknown' : `${crateOf(f.at)}: ${tidy(f.name)} (${f.at.split('/').at(-1)})`)
    const kind = site.kind.startsWith('mem') ? 'copy' : 'allocation'
    const by = label(asked)
    const under = own === undefined ? '' : label(own)
    const key = [kind, by, under].join('\0')
    const sum = groups.get(key) ?? { kind, by, under, calls: 0, bytes: 0 }
    groups.set(key, { ...sum, calls: sum.calls + site.calls, bytes: sum.bytes + site.bytes })
  }
  return [...groups.values()].toSorted((a, b) => b.calls - a.calls)
}
