/**
 * Reads YAML with places. Nodes are visited in the parsed document and never converted to objects: an alias is followed
 * when it is visited, so that a file of nested aliases stays cheap.
 */

import type { Alias, Document, LineCounter, Node, Pair, YAMLMap, YAMLSeq } from 'yaml'
import { isOpen, type At, type Edit, type Located } from './findings.js'
import { withTemplates, withoutTemplates } from './template.js'

/** Aliases and merges followed in one file. */
export const FOLLOWED_MAX = 1000
/** Nesting of brackets and list signs: the library's parser recurses and uses a kilobyte for each. */
export const YAML_DEPTH_MAX = 500
/** Items of a list, or members of a map. */
const ITEMS_MAX = 10_000

/** The file of a node: what its nodes share. */
interface YamlFile {
  library: Library
  lines: LineCounter
  path: string
  /** Templates behind words of the text. */
  templates: readonly string[]
  /** Aliases and merges that may still be followed. */
  left: number
}

/** Invalid YAML, or YAML above a limit. */
export class YamlError extends Error {}

type Library = typeof import('yaml')

export class Yaml {
  readonly #file: YamlFile
  readonly #document: Document
  readonly #node: Node
  /** The member whose value this is, and the map or list that holds it. */
  readonly #pair: Pair | null
  readonly #parent: Yaml | null

  constructor(file: YamlFile, document: Document, node: Node, pair: Pair | null = null, parent: Yaml | null = null) {
    this.#file = file
    this.#document = document
    this.#node = node
    this.#pair = pair
    this.#parent = parent
  }

  get at(): At {
    return { path: this.#file.path, line: this.#line(this.#node.range?.[0] ?? 0) }
  }

  /** Lines of the member or item, with all members above that would be empty without it; null if others share them. */
  get lines(): { from: number; through: number } | null {
    const parent = this.#parent
    const around = parent === null ? null : (parent.#node as YAMLMap | YAMLSeq)
    if (parent !== null && parent.#pair !== null && around?.items.length === 1) return parent.lines
    if (around?.flow === true) return null
    const key = this.#pair?.key as Node | null | undefined
    const from = this.#line(key?.range?.[0] ?? this.#node.range?.[0] ?? 0)
    return { from, through: Math.max(from, this.#line(Math.max(0, (this.#node.range?.[1] ?? 0) - 1))) }
  }

  /** The edit that removes the member or item; if it shares its line, those that remove its text `written`. */
  removal(written: string | null): Edit[] {
    const { lines } = this
    if (lines !== null) return [{ at: { ...this.at, line: lines.from }, throughLine: lines.through }]
    if (written === null) return []
    return [`${written}, `, `, ${written}`, written].map((from) => ({ at: this.at, from, to: '' }))
  }

  get isList(): boolean {
    return this.#file.library.isSeq(this.#node)
  }

  /** The node along a path of members; merged ones (`<<`) last. */
  get(...path: string[]): Yaml | null {
    return path.reduce<Yaml | null>((node, key) => (node === null ? null : node.#member(key)), this)
  }

  /** Members of the map along a path, without merged ones; none of any other node. */
  entries(...path: string[]): [string, Yaml][] {
    const node = this.get(...path)
    if (node === null) return []
    return node.#pairs.slice(0, ITEMS_MAX).flatMap((pair): [string, Yaml][] => {
      const child = node.#child(pair.value, pair)
      return child === null ? [] : [[withTemplates(keyOf(pair), this.#file.templates), child]]
    })
  }

  /** Items of the list along a path; none of any other node. */
  items(...path: string[]): Yaml[] {
    const node = this.get(...path)
    if (node === null || !this.#file.library.isSeq(node.#node)) return []
    return node.#node.items.slice(0, ITEMS_MAX).flatMap((item) => node.#child(item as Node | null, null) ?? [])
  }

  /** The scalar along a path as text; null for any other node. */
  text(...path: string[]): string | null {
    const found = this.get(...path)
    const node = found === null ? null : found.#node
    if (!this.#file.library.isScalar(node) || node.value === null) return null
    const text = typeof node.value === 'string' ? node.value : (node.source ?? String(node.value))
    return withTemplates(text, this.#file.templates)
  }

  /** The scalars of a list as one line. */
  line(...path: string[]): string {
    const words = this.items(...path).map((item) => item.text() ?? '')
    return words.join(' ')
  }

  located(): Located {
    const text = this.text() ?? ''
    // The text of a block begins on the line after its sign.
    const isBlock = this.#file.library.isScalar(this.#node) && this.#node.type?.startsWith('BLOCK') === true
    const { path, line } = this.at
    return { text, at: { path, line: isBlock ? line + 1 : line }, isOpen: isOpen(text) }
  }

  get #pairs(): Pair<Node, Node | null>[] {
    return this.#file.library.isMap(this.#node) ? (this.#node as YAMLMap<Node, Node | null>).items : []
  }

  #member(key: string): Yaml | null {
    const own = this.#pairs.find((pair) => keyOf(pair) === key)
    if (own !== undefined) return this.#child(own.value, own)
    for (const pair of this.#pairs) {
      if (keyOf(pair) !== '<<') continue
      const merged = this.#child(pair.value, pair)
      for (const one of merged === null ? [] : merged.isList ? merged.items() : [merged]) {
        this.#follow()
        const found = one.get(key)
        if (found !== null) return found
      }
    }
    return null
  }

  #child(value: Node | null, pair: Pair | null): Yaml | null {
    let node = value
    while (this.#file.library.isAlias(node)) {
      this.#follow()
      node = ((node as Alias).resolve(this.#document) as Node | undefined) ?? null
    }
    return node === null ? null : new Yaml(this.#file, this.#document, node, pair, this)
  }

  #follow(): void {
    if (--this.#file.left < 0) throw new YamlError(`more than ${FOLLOWED_MAX} aliases and merges`)
  }

  #line(offset: number): number {
    return this.#file.lines.linePos(offset).line
  }
}

function keyOf(pair: Pair): string {
  return String((pair.key as { value?: unknown } | null)?.value ?? '')
}

/**
 * The documents of a file.
 *
 * @throws {YamlError} with line and reason of the first mistake
 */
export async function readYaml(source: string, path: string): Promise<Yaml[]> {
  const { text, values } = withoutTemplates(source)
  requireFlat(text)
  const library = await import('yaml')
  const lines = new library.LineCounter()
  let documents: Document[]
  try {
    // Positions in messages take longer than all the rest.
    const parsed = library.parseAllDocuments(text, {
      lineCounter: lines,
      logLevel: 'silent',
      uniqueKeys: false,
      prettyErrors: false,
    })
    documents = Array.isArray(parsed) ? (parsed as Document[]) : []
  } catch (error) {
    // The parser recurses: a text of nothing but brackets overflows the stack.
    if (error instanceof RangeError) throw new YamlError('is nested too deep')
    throw error
  }
  for (const document of documents) {
    const [error] = document.errors
    if (error !== undefined) {
      if (/call stack/.test(error.message)) throw new YamlError('is nested too deep')
      throw new YamlError(
        `line ${Math.max(1, lines.linePos(error.pos[0]).line)}: ${error.message.split('\n')[0] ?? ''}`,
      )
    }
  }
  const file: YamlFile = { library, lines, path, templates: values, left: FOLLOWED_MAX }
  return documents.flatMap((document) =>
    document.contents === null ? [] : new Yaml(file, document, document.contents as Node),
  )
}

/** Counts brackets in any place: no hand-written file comes near the limit. */
function requireFlat(text: string): void {
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at]
    if (c === '[' || c === '{') depth += 1
    else if (c === ']' || c === '}') depth = Math.max(0, depth - 1)
    if (depth > YAML_DEPTH_MAX) throw new YamlError(`brackets are more than ${YAML_DEPTH_MAX} deep`)
  }
  if (new RegExp(`(?:[-?:][ \\t]+){${YAML_DEPTH_MAX}}`).test(text))
    throw new YamlError(`lists are more than ${YAML_DEPTH_MAX} deep`)
}
