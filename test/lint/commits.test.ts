/** The check of commit subjects in `npm run lint`. */
import { expect, test } from 'vitest'
import { subjectFault } from '../../scripts/lib/commits.mjs'

const check = (subject: string, fault: string | null) =>
  expect(subjectFault(subject), subject).toEqual(fault === null ? null : expect.stringContaining(fault))

test('a subject is an imperative with its area', () => {
  check('engine: back off collecting after a turn without a third request', null)
  check('frontend::gate: check the place once', null)
  check('README, docs: name the command', null)
  check('Merge branch of the console', null)
  check('limits of lines', 'names no area')
  check('engine: the queue is bounded', '"the" is no imperative')
  check('engine: bounds the queue', '"bounds" is no imperative')
  check('engine: bound the queue.', 'full stop')
  check(`engine: bound ${'x'.repeat(120)}`, '134 characters')
})
