/**
 * Decides whether a step's output still matches its inputs.
 *
 * A fingerprint lists the input files with size and modification time; the hash of their contents is read only if the
 * fingerprint changed, so a checkout that touches files without changing them rebuilds nothing.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Every file below `paths`, sorted. A missing path contributes nothing. */
export function filesBelow(root, paths, keep = () => true) {
  const out = []
  const visit = (path) => {
    const stat = statSync(join(root, path), { throwIfNoEntry: false })
    if (stat === undefined) return
    if (!stat.isDirectory()) {
      if (keep(path)) out.push({ path, size: stat.size, mtime: stat.mtimeMs })
      return
    }
    for (const name of readdirSync(join(root, path))) {
      if (!name.startsWith('.') && name !== 'node_modules' && name !== 'target') visit(join(path, name))
    }
  }
  for (const path of paths) visit(path)
  return out.sort((a, b) => (a.path < b.path ? -1 : 1))
}

const digest = (parts) => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest('hex')
}

const fingerprint = (files) => digest(files.map((f) => `${f.path} ${f.size} ${f.mtime}`))
const contents = (root, files) => digest(files.flatMap((f) => [f.path, readFileSync(join(root, f.path))]))

export class Stamps {
  constructor(root, file) {
    this.root = root
    this.file = join(root, file)
    this.known = this.#read()
  }

  #read() {
    try {
      return JSON.parse(readFileSync(this.file, 'utf8'))
    } catch {
      // Without a stamp, or after a crash cut it short, everything counts as out of date, which is only slower.
      return {}
    }
  }

  /** True if `files` are unchanged since the last `record`, all outputs exist, and `variants` has the recorded one. */
  isFresh(step, files, outputs, variants = [undefined]) {
    const last = this.known[step]
    if (
      last === undefined ||
      !variants.includes(last.variant) ||
      !outputs.every((path) => existsSync(join(this.root, path)))
    )
      return false
    if (last.fingerprint === fingerprint(files)) return true
    if (last.contents !== contents(this.root, files)) return false
    this.record(step, files, last.variant)
    return true
  }

  /** Records `files` as the inputs of the existing output; `variant` distinguishes outputs of the same inputs. */
  record(step, files, variant) {
    // Read again: another process may have recorded another step.
    this.known = {
      ...this.#read(),
      [step]: { fingerprint: fingerprint(files), contents: contents(this.root, files), variant },
    }
    mkdirSync(dirname(this.file), { recursive: true })
    // Renamed into place: two concurrent set-ups must not leave half a file.
    const temporary = `${this.file}.${process.pid}`
    writeFileSync(temporary, JSON.stringify(this.known))
    renameSync(temporary, this.file)
  }
}
