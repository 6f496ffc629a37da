/** Plans of loads, polls and unloads, without a core or a disk: a world of models in, steps as text out. */

import { expect, test } from 'vitest'
import type { KnownModel, Need, Outcome } from '../../src/repository/dependencies.js'
import { LATEST, dependentsOf, unloadedWith } from '../../src/repository/dependencies.js'
import {
  LoadPlan,
  isToLoad,
  missingIn,
  planPoll,
  relinked,
  stops,
  type Found,
  type LoadRequest,
  type Step,
  type World,
} from '../../src/repository/planner.js'

const BROKEN = 'it is broken'
/** Why an ensemble of a model without versions does not serve. */
const unserved = (ensemble: string, model: string): string =>
  `ensemble '${ensemble}' depends on '${model}' which has no loaded version. ` +
  `Model '${model}' loading failed with error: ${BROKEN}`

const needsIn = (text: string): Need[] =>
  text
    .split('+')
    .filter((name) => name !== '')
    .map((model) => ({ model, version: LATEST }))

/** Models as `name`, `ensemble=part+part`; each may be followed by `:` and its problems. */
class Models implements World {
  readonly known = new Map<string, KnownModel>()
  readonly outcomes = new Map<string, Outcome>()
  /** Result of a read of each directory: composing models, and problems. */
  readonly disk = new Map<string, { needs: Need[]; matters: string[] }>()

  constructor(known: string, disk: string) {
    const parse = (text: string): [string, Need[], string[]][] =>
      text.split(' ').flatMap((word) => {
        const [head = '', ...matters] = word.split(':')
        const [name = '', needs = ''] = head.split('=')
        return name === '' ? [] : [[name, needsIn(needs), matters]]
      })
    for (const [name, needs, matters] of parse(known)) this.add(name, needs, matters)
    for (const [name, needs, matters] of parse(disk)) this.disk.set(name, { needs, matters })
  }

  add(name: string, needs: Need[], matters: string[] = []): void {
    this.known.set(name, { needs, isImplicit: matters.includes('implicit') })
    const failure = matters.includes('broken') ? BROKEN : null
    this.outcomes.set(name, { versions: matters.includes('broken') ? [] : [1], failure, invalid: null })
  }

  models = (): ReadonlyMap<string, KnownModel> => this.known
  needs = (name: string): readonly Need[] => this.known.get(name)?.needs ?? []
  outcome = (name: string): Outcome => this.outcomes.get(name) ?? { versions: [], failure: null, invalid: null }
  exists = (name: string): boolean => this.disk.has(name)

  /** Carries out a step and returns what follows. */
  carryOut(step: Step, plan: LoadPlan): Step[] {
    const { model } = step
    const found = this.disk.get(model)
    if (step.act === 'read') return plan.wasRead(model, isRead(found) ? (found?.needs ?? []) : null)
    const before = this.known.get(model)
    if (step.act === 'mark' && before !== undefined) this.known.set(model, { ...before, isImplicit: step.isImplicit })
    if (step.act === 'mark' || step.act === 'miss') return []
    const outcome = this.outcome(model)
    const isImplicit = before?.isImplicit ?? false
    this.known.set(model, { needs: found?.needs ?? before?.needs ?? [], isImplicit })
    const fails = found?.matters.includes('broken') === true
    if (step.act === 'reject') this.outcomes.set(model, { versions: [], failure: step.why, invalid: step.why })
    else if (fails) this.outcomes.set(model, { ...outcome, failure: BROKEN })
    else this.outcomes.set(model, { versions: [1], failure: null, invalid: null })
    return plan.ended(model)
  }
}

const isRead = (found: { matters: string[] } | undefined): boolean =>
  found !== undefined && !found.matters.includes('unchanged') && !found.matters.includes('unreadable')

function text(step: Step): string {
  if (step.act === 'reject') return `reject ${step.model}: ${step.why}`
  if (step.act === 'mark') return `mark ${step.model} ${step.isImplicit ? 'implicit' : 'requested'}`
  return `${step.act} ${step.model}`
}

/** Steps in groups that may run at the same time; a group ends when all of its steps have. */
function steps(models: Models, request: LoadRequest): string {
  const plan = new LoadPlan(request, models)
  const groups: string[] = []
  for (let open = plan.begin(); open.length > 0;) {
    groups.push(open.map(text).join(', '))
    open = open.flatMap((step) => models.carryOut(step, plan))
  }
  return groups.join(' | ')
}

interface Case {
  /** Models that are loaded. */
  known?: string
  /** Directories of the repository. */
  disk: string
  load: string
  again?: string
  /** Mode explicit. */
  explicit?: boolean
}

function check({ known = '', disk, load, again = '', explicit = false }: Case, expected: string): void {
  const words = (names: string): string[] => names.split(' ').filter((name) => name !== '')
  const request = { names: words(load), followsNeeds: explicit, again: words(again) }
  expect(steps(new Models(known, disk), request)).toBe(expected)
}

test('R-27: models are read at once, and each loads when it was read', () => {
  check({ disk: 'a b c', load: 'a b c' }, 'read a, read b, read c | load a, load b, load c')
  check({ disk: '', load: '' }, '')
})

test('R-23: a model that did not change, or cannot be read, is not loaded', () => {
  check({ known: 'a b c', disk: 'a:unchanged b c:unreadable', load: 'a b c' }, 'read a, read b, read c | load b')
})

test('R-37: an ensemble loads after all of its composing models', () => {
  check({ disk: 'a b=a c=b+d d', load: 'c b a d' }, 'read c, read b, read a, read d | load a, load d | load b | load c')
  check({ disk: 'b=a a:unchanged', known: 'a', load: 'b a' }, 'read b, read a | load b')
})

test('R-37: in mode explicit an ensemble is read with all that it needs, at any depth', () => {
  check(
    { disk: 'e=f+a f=b a b', load: 'e', explicit: true },
    'read e | read f, read a | read b, load a | load b | load f | load e | mark f implicit, mark a implicit, ' +
      'mark b implicit',
  )
  check(
    { disk: 'e=a a', load: 'e' },
    'read e | reject e: ensemble e contains models that are not available or ambiguous: a',
  )
})

test('R-33: a model loaded by name stays requested when an ensemble loads it again', () => {
  check({ known: 'a', disk: 'e=a a', load: 'e', explicit: true }, 'read e | read a | load a | load e')
  check(
    { known: 'a:implicit e=a', disk: 'e=a a', load: 'a', explicit: true },
    'read a | load a | load e | mark a requested',
  )
})

test('R-37: an ensemble is rejected without its composing models, by name', () => {
  const missing = 'ensemble e contains models that are not available or ambiguous: gone'
  check({ disk: 'e=gone', load: 'e', explicit: true }, `read e | miss gone, reject e: ${missing}`)
  const broken = unserved('e', 'a')
  check({ disk: 'e=a a:broken', load: 'a e' }, `read a, read e | load a | reject e: ${broken}`)
  const invalid = `ensemble 'f' depends on 'e' which is not valid. Model 'e' failed with error: ${broken}`
  check(
    { disk: 'f=e e=a a:broken', load: 'a e f' },
    `read a, read e, read f | load a | reject e: ${broken} | reject f: ${invalid}`,
  )
  const ring = 'circular dependency between ensembles'
  check(
    { disk: 'e=f f=e', load: 'e f' },
    `read e, read f | reject e: ${ring}: e -> ... -> f -> e, reject f: ${ring}: f -> ... -> e -> f`,
  )
})

test('R-25: a failed load keeps the versions that serve, also for ensembles', () => {
  check({ known: 'a e=a', disk: 'a:broken e=a:unchanged', load: 'a e' }, 'read a, read e | load a | load e')
})

test('R-32: ensembles load again with what they need, or if a name means another model', () => {
  check({ known: 'a e=a f=e', disk: 'a e=a:unchanged f=e:unchanged', load: 'a' }, 'read a | load a | load e | load f')
  check({ known: 'a e=a f=e g', disk: '', load: '', again: 'e' }, 'load e | load f')
})

test('a model that was read already is not read twice', () => {
  const read = new Map([['e', needsIn('a')]])
  const found = steps(new Models('', 'e=a a'), { names: ['e'], followsNeeds: true, read })
  expect(found).toBe('read a | load a | load e | mark a implicit')
})

test('a plan touches what it reads, then what it loads', () => {
  const models = new Models('user=b', 'e=a+b a b')
  const plan = new LoadPlan({ names: ['e'], followsNeeds: true }, models)
  const touched = (): string => ['e', 'a', 'b', 'user'].filter((name) => plan.touches(name)).join(' ')
  const reading = (): string => [...(plan.reading?.models ?? [])].join(' ')
  let open = plan.begin()
  expect([touched(), reading()]).toEqual(['e', 'e'])
  open = open.flatMap((step) => models.carryOut(step, plan))
  expect([touched(), reading()]).toEqual(['e a b', 'e a b'])
  open.forEach((step) => models.carryOut(step, plan))
  expect([touched(), reading()]).toEqual(['e a b user', ''])
  expect(new LoadPlan({ names: ['a', 'b'], followsNeeds: true }, models).reading).toBeNull()
})

/** Unloads a model: `gone; stopped: why`. */
function checkUnload(known: string, name: string, andDependents: boolean, expected: string): void {
  const models = new Models(known, '')
  const before = new Map(models.known)
  const gone = unloadedWith(before, name, andDependents)
  for (const model of gone) models.known.delete(model)
  const stopped = stops(models.known, dependentsOf(before, gone), models, false)
  expect([gone.join(' '), ...stopped.map(([model, why]) => `${model}: ${why ?? ''}`)].join('; ')).toBe(expected)
}

test('R-33: an unload takes what only its ensemble needed, if that is asked for', () => {
  const known = 'e=a+b+c f=c a:implicit b c:implicit'
  checkUnload(known, 'e', false, 'e')
  checkUnload(known, 'e', true, 'e a')
  checkUnload(known, 'unknown', true, 'unknown')
})

test('R-32: ensembles that need an unloaded model stop, each with its reason', () => {
  const why = (name: string): string => `ensemble ${name} contains models that are not available or ambiguous: a`
  const depends = "ensemble 'f' depends on 'e' which is not valid. Model 'e' failed with error: "
  checkUnload('e=a a f=e other', 'a', false, `a; e: ${why('e')}; f: ${depends}${why('e')}`)
})

test('a withdrawn model stops those of its ensembles that have no version of it left', () => {
  const models = new Models('a:broken b e=a f=b', '')
  const stopped = stops(models.known, ['e', 'f'], models, true)
  const why = unserved('e', 'a')
  expect(stopped).toEqual([['e', why]])
})

/** A poll of directories, with the models that are loaded and those that the first look missed: `gone; read`. */
function checkPoll(dirs: string, loaded: string, missing: string, unreadable: string, expected: string): void {
  const words = (list: string): string[] => list.split(' ').filter((word) => word !== '')
  const found = new Map<string, string[]>()
  for (const directory of words(dirs)) {
    const [, repository = '', name = ''] = directory.split('/')
    const key = repository.startsWith('ns') ? `/${repository}/${name}` : name
    found.set(key, [...(found.get(key) ?? []), directory])
  }
  const from = new Map(words(loaded).map((word) => word.split('@') as [string, string]))
  const listing = { found, unreadable: new Set(words(unreadable)) }
  const { gone, names } = planPoll(listing, from, new Set(words(missing)))
  expect(`${gone.join(' ')}; ${names.join(' ')}`).toBe(expected)
}

test('R-22: a poll reads what is there and unloads what is missing in two listings', () => {
  checkPoll('/r/a /r/b', 'a@/r/a', '', '', '; a b')
  checkPoll('/r/b', 'a@/r/a b@/r/b', '', '', '; b')
  checkPoll('/r/b', 'a@/r/a b@/r/b', 'a', '', 'a; b')
  checkPoll('/r/a /r/b', 'a@/r/a b@/r/b', 'a', '', '; a b')
})

test('R-29, R-40: a model in two repositories is gone, except in namespaces', () => {
  checkPoll('/r/a /s/a /r/b', 'a@/r/a b@/r/b', 'a', '', 'a; a b')
  checkPoll('/ns1/a /ns2/a', '/ns1/a@/ns1/a', '/ns1/a', '', '; /ns1/a /ns2/a')
})

test('models of a repository that cannot be read stay as they are', () => {
  checkPoll('/s/b', 'a@/r/a b@/s/b', 'a', '/r', '; b')
  checkPoll('/s/a', 'a@/r/a', 'a', '/r', '; ')
  expect(
    missingIn(
      { found: new Map(), unreadable: new Set(['/r']) },
      new Map([
        ['a', '/r/a'],
        ['b', '/s/b'],
      ]),
    ),
  ).toEqual(['b'])
})

test('R-40: ensembles whose steps mean models of other repositories load again', () => {
  const of = (needs: string): Map<string, KnownModel> =>
    new Map([
      ['/r/e', { needs: needsIn(needs), isImplicit: false }],
      ['/r/f', { needs: needsIn('b'), isImplicit: false }],
    ])
  expect(relinked(of('/r/a'), of('a'))).toEqual(['/r/e'])
  expect(relinked(of('/r/a'), of('/r/a'))).toEqual([])
  expect(relinked(new Map(), of('/r/a'))).toEqual(['/r/e', '/r/f'])
})

test('R-23, R-28, R-34: when a model that was found is loaded', () => {
  const found = (more: Partial<Found>): boolean =>
    isToLoad({ isOverride: false, stamp: 5n, loaded: 5n, isUnusable: false, isPaused: false, ...more })
  expect(found({})).toBe(false)
  expect(found({ stamp: 6n })).toBe(true)
  expect(found({ stamp: 4n })).toBe(false)
  expect(found({ loaded: null })).toBe(true)
  // After an override or a failure.
  expect(found({ loaded: 0n })).toBe(true)
  expect(found({ isOverride: true, stamp: 0n })).toBe(true)
  // The files of an override are the whole of it, so a second one is read in any case.
  expect(found({ isOverride: true, stamp: 0n, loaded: 0n })).toBe(true)
  expect(found({ isUnusable: true })).toBe(true)
  // Files that failed are not loaded again yet.
  expect(found({ stamp: 6n, isPaused: true })).toBe(false)
})
