import { expect, test } from 'vitest'
import {
  Rings,
  complaint,
  dependentsOf,
  unloadedWith,
  waves,
  type KnownModel,
  type Outcome,
} from '../../src/repository/dependencies.js'

/**
 * `e: a b@2` is an ensemble of the latest a and version 2 of b; `~a` was loaded only for an ensemble; `a` is a model.
 */
function known(...lines: string[]): Map<string, KnownModel> {
  return new Map(
    lines.map((line) => {
      const [head = '', steps = ''] = line.split(':')
      const needs = steps
        .split(' ')
        .filter((s) => s !== '')
        .map((s) => s.split('@'))
        .map(([model = '', version]) => ({ model, version: version === undefined ? -1n : BigInt(version) }))
      return [head.replace('~', ''), { needs, isImplicit: head.startsWith('~') }]
    }),
  )
}

const READY: Outcome = { versions: [1], failure: null, invalid: null }

test('ensembles depend on their composing models, directly and indirectly', () => {
  const models = known('a', 'b', 'c', 'e: a b', 'f: e c', 'g: c', 'h: nobody')
  expect(dependentsOf(models, ['a'])).toEqual(['e', 'f'])
  expect(dependentsOf(models, ['c'])).toEqual(['f', 'g'])
  expect(dependentsOf(models, ['a', 'e'])).toEqual(['f'])
  expect(dependentsOf(models, ['nobody'])).toEqual(['h'])
  expect(dependentsOf(models, ['h'])).toEqual([])
})

test('composing models are loaded before their ensembles (R-37)', () => {
  const models = known('a', 'b', 'e: a b', 'f: e a', 'x: y', 'y: x', 'z: z')
  expect(waves(models, ['f', 'e', 'b', 'a'])).toEqual([['a', 'b'], ['e'], ['f']])
  // A model that is not loaded now is not waited for.
  expect(waves(models, ['f', 'a'])).toEqual([['a'], ['f']])
  expect(waves(models, ['x', 'y', 'z', 'a'])).toEqual([['a'], ['x', 'y', 'z']])
  expect(waves(models, [])).toEqual([])
  // An ensemble that needs a ring is checked after the ring has failed, regardless of names.
  expect(waves(known('b: x', 'c: b a', 'a', 'x: y', 'y: x'), ['a', 'b', 'c', 'x', 'y'])).toEqual([
    ['a'],
    ['x', 'y'],
    ['b'],
    ['c'],
  ])
})

test('a chain of a thousand ensembles has a wave each, a ring of a thousand has one', () => {
  const chain = known('m0', ...Array.from({ length: 1000 }, (_, i) => `m${i + 1}: m${i}`))
  expect(waves(chain, chain.keys())).toHaveLength(1001)
  expect(dependentsOf(chain, ['m0'])).toHaveLength(1000)
  const ring = known(...Array.from({ length: 1000 }, (_, i) => `m${i}: m${(i + 1) % 1000}`))
  expect(waves(ring, ring.keys())).toHaveLength(1)
  expect(complaint(ring, 'm0', () => READY)).toBe('circular dependency between ensembles: m999 -> ... -> m998 -> m999')
})

test('dependencies of a large repository are found in linear time', () => {
  const time = (work: () => void): number => {
    const begun = process.cpuUsage()
    work()
    return process.cpuUsage(begun).user / 1000
  }
  const size = 20_000
  const names = (make: (i: number) => string): Map<string, KnownModel> =>
    known(...Array.from({ length: size }, (_, i) => make(i)))
  const shapes = {
    ring: names((i) => `m${i}: m${(i + 1) % size}`),
    chain: names((i) => (i === 0 ? 'm0' : `m${i}: m${i - 1}`)),
    // Each model is in a ring, most in many.
    knot: names((i) => `m${i}: m${(i + 1) % size} m${(i * 7) % size} m${(i * 31) % size}`),
  }
  const took = Object.entries(shapes).map(([shape, models]) => {
    const rings = new Rings(models)
    const ms = time(() => {
      for (const name of waves(models, models.keys(), rings).flat()) complaint(models, name, () => READY, rings)
    })
    return [shape, ms] as const
  })
  // Some 50 ms each; quadratic time would be minutes.
  for (const [shape, ms] of took) expect(ms, shape).toBeLessThan(2000)
})

test('rings are the same as by a search from each model', () => {
  let random = 12345
  const next = (below: number): number => {
    random = (random * 1103515245 + 12345) % 2147483648
    return random % below
  }
  for (let round = 0; round < 300; round++) {
    const size = 1 + next(12)
    const models = known(
      ...Array.from(
        { length: size },
        (_, i) => `m${i}: ${Array.from({ length: next(3) }, () => `m${next(size)}`).join(' ')}`,
      ),
    )
    const rings = new Rings(models)
    for (const name of models.keys()) {
      const open = [name]
      const seen = new Set<string>()
      for (const at of open) {
        for (const { model } of models.get(at)?.needs ?? []) {
          if (seen.has(model)) continue
          seen.add(model)
          open.push(model)
        }
      }
      expect(rings.has(name), `round ${round}: ${name}`).toBe(seen.has(name))
    }
  }
})

test.each<[string[], string, Record<string, Partial<Outcome>>, string | null]>([
  [['a', 'e: a a'], 'e', {}, null],
  [['e: nonesuch nonesuch2'], 'e', {}, 'ensemble e contains models that are not available or ambiguous: nonesuch'],
  [['r1: r2', 'r2: r3', 'r3: r1'], 'r1', {}, 'circular dependency between ensembles: r3 -> ... -> r2 -> r3'],
  [['e: e'], 'e', {}, 'circular dependency between ensembles: e -> ... -> e -> e'],
  [['x: y', 'y: x'], 'x', {}, 'circular dependency between ensembles: x -> ... -> y -> x'],
  // A model beside a ring: the models that it needs explain why it fails.
  [
    ['e: x', 'x: x'],
    'e',
    { x: { versions: [], invalid: 'a ring' } },
    "ensemble 'e' depends on 'x' which is not valid. Model 'x' failed with error: a ring",
  ],
  [
    ['a', 'e: a'],
    'e',
    { a: { versions: [], failure: 'version 1 is at UNAVAILABLE state: Internal: onnx;' } },
    "ensemble 'e' depends on 'a' which has no loaded version. Model 'a' loading failed with error: version 1 " +
      'is at UNAVAILABLE state: Internal: onnx;',
  ],
  [['a', 'e: a'], 'e', { a: { versions: [] } }, "ensemble 'e' depends on 'a' which has no loaded version."],
  [['a', 'e: a@9'], 'e', {}, "ensemble 'e' depends on 'a' whose required version 9 is not loaded."],
  [['a', 'e: a@0'], 'e', {}, "ensemble 'e' depends on 'a' whose required version 0 is not loaded."],
  [['a', 'e: a@3'], 'e', { a: { versions: [2, 3] } }, null],
  [['a', 'b', 'e: a b'], 'e', { b: { versions: [] } }, "ensemble 'e' depends on 'b' which has no loaded version."],
])('%j: %s with %j: %j (R-37)', (lines, name, outcomes, expected) => {
  expect(complaint(known(...lines), name, (model) => ({ ...READY, ...outcomes[model] }))).toBe(expected)
})

test('an unload with dependents removes models that were loaded for it (R-33)', () => {
  const check = (lines: string[], name: string, expected: string[]): void => {
    const models = known(...lines)
    expect(unloadedWith(models, name, false)).toEqual([name])
    expect(unloadedWith(models, name, true).toSorted()).toEqual(expected)
  }
  check(['~a', 'e: a'], 'e', ['a', 'e'])
  check(['a', 'e: a'], 'e', ['e'])
  check(['~a', 'e: a', 'f: a'], 'e', ['e'])
  check(['~a', '~b', '~e: a b', 'f: e b'], 'f', ['a', 'b', 'e', 'f'])
  check(['~a', '~e: a', 'f: e', 'g: a'], 'f', ['e', 'f'])
  // A remaining ensemble keeps its composing models, even if it is one itself.
  check(['~a', 'e: a', 'f: e a'], 'f', ['f'])
  check(['a'], 'a', ['a'])
  check([], 'nobody', ['nobody'])
})
