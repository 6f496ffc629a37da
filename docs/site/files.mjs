/**
 * The files that pages name. A path in backticks, or a link to a file that is no page, leads to a copy of that file
 * in the site: it is there without network and is the file of this version.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** Larger files, such as locks of packages, are named without a link. */
const BYTES_MAX = 256 * 1024
/** The files of a folder with more are listed without links: a page that names `crates` does not publish them all. */
const LINKED_MAX = 15

export class Files {
  #root
  #files
  #folders = new Set()
  /** Path → address, of those that a page names. */
  named = new Map()

  constructor(root) {
    this.#root = root
    // Only what git tracks: a build or a private file never gets into the site.
    this.#files = new Set(execFileSync('git', ['ls-files', '-z'], { cwd: root, encoding: 'utf8' }).split('\0'))
    for (const file of this.#files) {
      const parts = file.split('/')
      for (let n = 1; n < parts.length; n += 1) this.#folders.add(parts.slice(0, n).join('/'))
    }
  }

  has(path) {
    return this.#files.has(path) || this.#folders.has(path)
  }

  /** The address of the copy, which `html` makes later; null for a file that is too large or is not text. */
  address(path) {
    if (!this.#folders.has(path)) {
      if (!this.#files.has(path) || statSync(join(this.#root, path)).size > BYTES_MAX) return null
      if (readFileSync(join(this.#root, path)).includes(0)) return null
    }
    const address = `files/${path}.html`
    this.named.set(path, address)
    return address
  }

  /** A file as a page or as code, or a folder as a list, without the frame of a page. */
  html(path, md) {
    if (!this.#folders.has(path)) {
      const text = readFileSync(join(this.#root, path), 'utf8')
      if (path.endsWith('.md')) return md.render(text, { source: path, address: this.named.get(path) })
      // A fence longer than any in the text.
      const fence = '`'.repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length + 1)))
      const code = `${fence}${languageOf(path)}\n${text.replace(/\n?$/, '\n')}${fence}`
      return md.render(`# ${path}\n\n${code}\n`, { source: path, address: this.named.get(path) })
    }
    const below = [...this.#files].filter((file) => file.startsWith(`${path}/`)).toSorted()
    const env = { source: path, address: this.named.get(path), unlinked: below.length > LINKED_MAX }
    return md.render(`# ${path}\n\n${below.map((file) => `- \`${file}\``).join('\n')}\n`, env)
  }
}

const LANGUAGES = { mjs: 'javascript', js: 'javascript', ts: 'typescript', rs: 'rust', py: 'python', json: 'json' }
const languageOf = (path) => {
  const ending = path.slice(path.lastIndexOf('.') + 1)
  return LANGUAGES[ending] ?? (['yaml', 'pbtxt', 'sh', 'ini'].includes(ending) ? ending : '')
}
