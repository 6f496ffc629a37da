/**
 * Looks into YAML, with places. Nodes are looked at where they stand and never made into objects: an alias is followed when it is
 * met, so that a file of aliases of aliases costs nothing.
 */

import type { Alias, Document, LineCounter, Node, Pair, YAMLMap } from 'yaml'
import type { Located } from './findings.js'
import { withTemplates, withoutTemplates } from './template.js'

/** Aliases and merges that are followed in one file. */
export const FOLLOWED_MAX = 1000
/** Brackets inside one another, and signs of lists on one line: the library's reader recurses, and takes a kilobyte for each. */
export const YAML_DEPTH_MAX = 500
/** Items of a list, members of a map. */
const ITEMS_MAX = 10_000

/** What all nodes of a file share: how many aliases and merges may still be followed, and the templates that words stand for. */
interface Shared {
  left: number
  templates: readonly string[]
}

/** A text that is no YAML, or none that is read. */
export class YamlError extends Error {}

type Library = typeof import('yaml')

export class Yaml {
  readonly #library: Library
  readonly #node: Node
  readonly #document: Document
  readonly #lines: LineCounter
  readonly #shared: Shared
  readonly path: string
  /** The member that it is the value of, and the map that has it. */
  readonly #pair: Pair | null
  readonly #parent: Yaml | null

  constructor(library: Library, node: Node, document: Document, lines: LineCounter, shared: Shared, path: string, pair: Pair | null = null, parent: Yaml | null = null) {
    this.#library = library
    this.#node = node
    this.#document = document
    this.#lines = lines
    this.#shared = shared
    this.path = path
    this.#pair = pair
    this.#parent = parent
  }

  get at(): { path: string; line: number } {
    return { path: this.path, line: this.#line(this.#node.range?.[0] ?? 0) }
  }

  /** Lines of the member and its value, with all members above that would be empty without it; null when other members share them. */
  get lines(): { from: number; through: number } | null {
    const parent = this.#parent
    if (parent !== null && parent.#pair !== null && parent.map()?.items.length === 1) return parent.lines
    if (parent?.map()?.flow === true) return null
    const key = this.#pair?.key as Node | null | undefined
    const from = this.#line(key?.range?.[0] ?? this.#node.range?.[0] ?? 0)
    return { from, through: Math.max(from, this.#line(Math.max(0, (this.#node.range?.[1] ?? 0) - 1))) }
  }

  map(): YAMLMap<Node, Node | null> | null {
    return this.#library.isMap(this.#node) ? (this.#node as YAMLMap<Node, Node | null>) : null
  }

  /** A member of a map; one that is merged in (`<<`) where it has none of its own. */
  get(key: string): Yaml | null {
    const map = this.map()
    if (map === null) return null
    const own = map.items.find((pair) => keyOf(pair) === key)
    if (own !== undefined) return this.#child(own.value, own)
    for (const pair of map.items) {
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

  /** `get` again and again. */
  find(first: string, ...rest: string[]): Yaml | null {
    let node = this.get(first)
    for (const key of rest) node = node?.get(key) ?? null
    return node
  }

  /** Members of a map, without those that are merged in. */
  entries(): [string, Yaml][] {
    return (this.map()?.items ?? []).slice(0, ITEMS_MAX).flatMap((pair): [string, Yaml][] => {
      const child = this.#child(pair.value, pair)
      return child === null ? [] : [[withTemplates(keyOf(pair), this.#shared.templates), child]]
    })
  }

  /** Items of a list; none of anything else. */
  items(): Yaml[] {
    if (!this.#library.isSeq(this.#node)) return []
    return this.#node.items.slice(0, ITEMS_MAX).flatMap((item) => this.#child(item as Node | null, null) ?? [])
  }

  get isList(): boolean {
    return this.#library.isSeq(this.#node)
  }

  /** A scalar as text; null of anything else. */
  text(): string | null {
    if (!this.#library.isScalar(this.#node)) return null
    const { value, source } = this.#node
    return value === null ? null : withTemplates(typeof value === 'string' ? value : (source ?? String(value)), this.#shared.templates)
  }

  located(): Located {
    const text = this.text() ?? ''
    // The text of a block begins below its sign.
    const isBlock = this.#library.isScalar(this.#node) && this.#node.type?.startsWith('BLOCK') === true
    const { path, line } = this.at
    return { text, at: { path, line: isBlock ? line + 1 : line }, isOpen: /\$[({A-Za-z]|\{\{/.test(text) }
  }

  #child(value: Node | null, pair: Pair | null): Yaml | null {
    let node = value
    while (this.#library.isAlias(node)) {
      this.#follow()
      node = ((node as Alias).resolve(this.#document) as Node | undefined) ?? null
    }
    return node === null ? null : new Yaml(this.#library, node, this.#document, this.#lines, this.#shared, this.path, pair, pair === null ? null : this)
  }

  #follow(): void {
    if (--this.#shared.left < 0) throw new YamlError(`more than ${FOLLOWED_MAX} aliases and merges`)
  }

  #line(offset: number): number {
    return this.#lines.linePos(offset).line
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
    // A place in each message takes longer than all the rest.
    const parsed = library.parseAllDocuments(text, { lineCounter: lines, logLevel: 'silent', uniqueKeys: false, prettyErrors: false })
    documents = Array.isArray(parsed) ? (parsed as Document[]) : []
  } catch (error) {
    // Its reader recurses: a text of nothing but brackets.
    if (error instanceof RangeError) throw new YamlError('is nested too deep')
    throw error
  }
  for (const document of documents) {
    const [error] = document.errors
    if (error !== undefined) {
      if (/call stack/.test(error.message)) throw new YamlError('is nested too deep')
      throw new YamlError(`line ${Math.max(1, lines.linePos(error.pos[0]).line)}: ${error.message.split('\n')[0] ?? ''}`)
    }
  }
  const shared = { left: FOLLOWED_MAX, templates: values }
  return documents.flatMap((document) => (document.contents === null ? [] : new Yaml(library, document.contents as Node, document, lines, shared, path)))
}

/** Brackets are counted wherever they stand: no file of a person comes near. */
function requireFlat(text: string): void {
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at]
    if (c === '[' || c === '{') depth += 1
    else if (c === ']' || c === '}') depth = Math.max(0, depth - 1)
    if (depth > YAML_DEPTH_MAX) throw new YamlError(`brackets are more than ${YAML_DEPTH_MAX} deep`)
  }
  if (new RegExp(`(?:[-?:][ \\t]+){${YAML_DEPTH_MAX}}`).test(text)) throw new YamlError(`lists are more than ${YAML_DEPTH_MAX} deep`)
}
