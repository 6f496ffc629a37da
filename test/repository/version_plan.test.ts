/** Plans of the versions of one model, without a core: what happens to each, and steps as text. */

import { expect, test } from 'vitest'
import { versionSteps, type Progress, type VersionStep } from '../../src/repository/version_plan.js'

const words = (list: string): string[] => list.split(' ').filter((word) => word !== '')

/**
 * Loads the versions `selected`, while `serving` serve; those with a `=` need at most other instances. `events` are
 * steps that fail, and updates that need a reload.
 */
function check(selected: string, serving: string, events: string, expected: string): void {
  const progress = new Map<number, Progress>(
    words(selected).map((word) => [Number.parseInt(word), word.endsWith('=') ? 'continues' : 'reloads']),
  )
  const serves = new Set(words(serving).map(Number))
  const happens = events.split(',').map((event) => event.trim())
  const after = ({ act, version }: VersionStep): Progress => {
    if (happens.includes(`${act} ${version} fails`)) return 'failed'
    if (act === 'update') return happens.includes(`${act} ${version} reloads`) ? 'reloads' : 'updated'
    if (act === 'open') return 'opened'
    if (act !== 'publish') return 'undone'
    return serves.has(version) ? 'replaced' : 'added'
  }
  const groups: string[] = []
  for (;;) {
    const steps = versionSteps(progress, [...serves])
    if (steps.length === 0) break
    groups.push(steps.map(({ act, version }) => `${act} ${version}`).join(', '))
    for (const step of steps) {
      progress.set(step.version, after(step))
      if (step.act === 'publish' && progress.get(step.version) !== 'failed') serves.add(step.version)
      if (step.act === 'retire') serves.delete(step.version)
    }
  }
  expect(groups.join(' | ')).toBe(expected)
}

test('R-24: versions are opened together, and published in order when all are open', () => {
  check('1', '', '', 'open 1 | publish 1')
  check('2 1 3', '', '', 'open 1, open 2, open 3 | publish 1 | publish 2 | publish 3')
  check('', '', '', '')
})

test('R-24: a version that does not open leaves everything as it was', () => {
  check('1 2', '', 'open 2 fails', 'open 1, open 2 | discard 1')
  check('1 2', '1', 'open 1 fails, open 2 fails', 'open 1, open 2')
})

test('R-25: if a publication fails, replaced versions stay and new ones are retired', () => {
  check('1 2 3', '1', 'publish 3 fails', 'open 1, open 2, open 3 | publish 1 | publish 2 | publish 3 | retire 2')
  check('1 2 3', '', 'publish 1 fails', 'open 1, open 2, open 3 | publish 1 | discard 2, discard 3')
})

test('R-06: versions that the policy does not select any more are retired last', () => {
  check('3', '1 2', '', 'open 3 | publish 3 | retire 1, retire 2')
  check('3', '1 2', 'open 3 fails', 'open 3')
  check('', '1', '', 'retire 1')
})

test('R-28: versions of which only instances change get those, and others are opened', () => {
  check('1= 2=', '1 2', '', 'update 1 | update 2')
  check('1= 2', '1', '', 'update 1 | open 2 | publish 2')
  check('1= 2=', '1 2', 'update 1 reloads', 'update 1 | update 2 | open 1 | publish 1')
  check('1= 2', '1', 'update 1 fails', 'update 1')
  check('1=', '1 2', '', 'update 1 | retire 2')
})
