/** The README's figures are those of the recorded full run: nobody edits them by hand. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { markdown } from '../../bench/report/markdown.mjs'
import { page } from '../../bench/report/page.mjs'
import { marked, readmePart } from '../../bench/report/readme.mjs'
import { judge } from '../../bench/report/targets.mjs'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

test('the table and the counts in README.md', () => {
  const result = JSON.parse(read('bench/results/full.json'))
  expect(result.quick).toBe(false)
  expect(result.targets).toEqual(JSON.parse(JSON.stringify(judge(result))))
  expect(read('bench/results/full.md')).toBe(marked(markdown(result)))
  // The page is in no commit; a run writes it.
  expect(page(result)).toContain('</html>')
  // Missed targets are in full.md, not in README.md.
  expect(read('bench/results/full.md')).toContain('**missed**')
  expect(read('README.md')).toContain(`begin -->\n\n${readmePart(result, 'bench/results/full.md')}\n\n<!--`)
})
