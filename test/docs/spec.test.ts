/** docs/spec says how Triton behaves: it has no advice, no plans and no estimates. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT, textOf } from './pages.js'

const PAGES = readdirSync(join(ROOT, 'docs/spec')).map((name) => `docs/spec/${name}`)

/** Words of a brief. Texts between backticks and quotation marks are Triton's and may have them. */
const WORDS = new RegExp(
  [
    'recommend(?:ed|ation|s)?',
    'suggest(?:s|ion|ions)?',
    'server being built',
    'our (?:own|server|design|process|runtime|core|package)',
    'ours?:',
    '(?<!best )efforts?',
    '(?:first|second|next|later|this|usable) release',
    'drop-in',
    'roadmap',
    'to be built',
    'worth (?:having|making|hosting|it)',
    'improve:',
    'do not copy',
    'decide once',
    'nice to have',
    'developers? of an inference server',
    '(?:one|two|three|four) (?:days|weeks|months)',
    '[1-9] ?(?:days|weeks|months)',
    'to ?do:?',
  ]
    .map((words) => `(?<![\\w-])${words}(?![\\w-])`)
    .join('|'),
  'gi',
)
/** Names that contain such a word, and the pages' own sentence about releases of Triton. */
const NAMES = /minimal, recommended \||the first release with it is given|"Not in this release"/g

function adviceIn(text: string): string[] {
  const prose = text
    .replaceAll(/```[\s\S]*?```/g, '')
    .replaceAll(/`[^`\n]*`/g, '')
    .replaceAll(NAMES, '')
  return prose.split('\n').flatMap((line, at) => [...line.matchAll(WORDS)].map(([word]) => `${at + 1}: ${word}`))
}

test.each(PAGES)('%s has facts only', (page) => {
  expect(adviceIn(textOf(page))).toEqual([])
})

test('advice, plans and estimates would be found', () => {
  const lines = [
    'Recommended: 404.',
    'Effort: 2 weeks.',
    'Not in the first release.',
    'Ours: the same.',
    'It is worth having.',
  ]
  for (const line of lines) expect(adviceIn(line), line).not.toEqual([])
  expect(adviceIn('`recommended` is the name of a library; weekly releases of Triton')).toEqual([])
})
