/** The pages for people, for the tests of docs. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Pages with prose and examples; the contract cites Triton's own words and is excluded. */
export const PAGES = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]

/** Pages with the differences from Triton; the first has those that can break a deployment. */
export const COMPAT = ['COMPAT.md', ...readdirSync(join(ROOT, 'docs/compat')).map((name) => `docs/compat/${name}`)]

/** Pages about the current server: the names in them must exist. */
export const ALL = [
  ...PAGES,
  ...COMPAT,
  'ARCHITECTURE.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'bench/README.md',
  'docs/spec/README.md',
  'docs/deploy/README.md',
]

export const textOf = (page: string): string => readFileSync(join(ROOT, page), 'utf8')

/** Prose without fenced blocks. */
export const proseOf = (page: string): string => textOf(page).replaceAll(/^ *```[\s\S]*?^ *```$/gm, '')

/** Texts between backticks in prose. */
export const spansOf = (page: string): string[] =>
  [...proseOf(page).matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span)

export interface Block {
  page: string
  language: string
  text: string
  /** Comments above it: see test/pages/examples.py. */
  markers: string[]
}

/** Fenced blocks with the comments directly above them. */
export function blocksOf(page: string): Block[] {
  return [...textOf(page).matchAll(/((?:^ *<!-- .* -->\n\n?)*)^ *```([\w-]*)\n([\s\S]*?)^ *```$/gm)].map(
    ([, above = '', language = '', text = '']) => ({
      page,
      language,
      text,
      markers: [...above.matchAll(/<!-- ([a-z ]+?)(?::.*)? -->/g)].map(([, marker = '']) => marker),
    }),
  )
}
