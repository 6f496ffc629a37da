/** Which changes `nereid dev` notices, and what it reloads for them, with small limits. */
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { afterEach, expect, test } from 'vitest'
import { importsOf } from '../../src/tools/dev/imports.js'
import { Reloads } from '../../src/tools/dev/reloads.js'
import { Watch } from '../../src/tools/dev/watch.js'
import type { Repository } from '../../src/repository/index.js'
import { until } from '../javascript/served.js'
import { files } from './harness.js'

const watches: Watch[] = []
afterEach(() => {
  for (const watch of watches.splice(0)) watch.close()
})

function watched(content: Record<string, string>, directoriesMax?: number) {
  const root = `${files(content)}/models`
  const changed = new Set<string>()
  const warnings: string[] = []
  watches.push(
    new Watch(
      root,
      (path) => changed.add(path.slice(root.length + 1)),
      (text) => warnings.push(text),
      directoriesMax,
    ),
  )
  const sees = async (path: string): Promise<void> => {
    writeFileSync(`${root}/${path}`, 'new')
    await until(path, () => changed.has(path), 5000)
    changed.clear()
  }
  return { root, changed, warnings, sees }
}

test('saves are seen in directories that are removed and made again', async () => {
  const { root, sees } = watched({ 'models/m/1/model.ts': '' })
  const again = (path: string, make: string): void => {
    rmSync(path, { recursive: true })
    mkdirSync(make, { recursive: true })
  }
  for (let i = 0; i < 3; i += 1) {
    again(`${root}/m/1`, `${root}/m/1`)
    await sees('m/1/model.ts')
    again(`${root}/m`, `${root}/m/1`)
    await sees('m/1/model.ts')
    again(root, `${root}/m/1`)
    await sees('m/1/model.ts')
  }
  renameSync(root, `${root}.old`)
  mkdirSync(`${root}/m/1`, { recursive: true })
  await sees('m/1/model.ts')
})

test('temporary files are ignored, but not directories of such names', async () => {
  const { root, changed, sees } = watched({ 'models/m.tmp/4913/model.ts': '', 'models/m.tmp/__pycache__/a': '' })
  await sees('m.tmp/4913/model.ts')
  mkdirSync(`${root}/m.tmp/5~`)
  await sees('m.tmp/5~/model.ts')
  for (const name of ['m.tmp/5~/4913', 'm.tmp/model.ts~', '.model.ts.swp', 'm.tmp/__pycache__/b'])
    writeFileSync(`${root}/${name}`, '')
  writeFileSync(`${root}/m.tmp/4913/last.ts`, '')
  await until('the last', () => changed.has('m.tmp/4913/last.ts'))
  expect([...changed].filter((path) => !path.startsWith('m.tmp/4913'))).toEqual([])
})

test('links in a ring use no directories', async () => {
  const content = { 'models/m/1/model.ts': '', 'models/n/1/model.ts': '' }
  const { root, warnings, sees } = watched(content, 5)
  symlinkSync(root, `${root}/m/1/ring`)
  await sees('n/1/model.ts')
  expect(warnings).toEqual([])
  for (const name of ['2', '3']) mkdirSync(`${root}/n/${name}`)
  await until('a warning', () => warnings.length > 0)
  expect(warnings).toEqual([
    'not all directories are watched: there are more than 5; move models that you do not work on to another repository',
  ])
})

test('changes while the models load are bounded; more reload each model', async () => {
  const root = `${files({ 'models/m/1/model.ts': '', 'models/n/1/model.ts': '' })}/models`
  const printed: string[] = []
  const reloaded: string[] = []
  const repository = {
    withdraw: async () => {},
    reload: async (model: string) => {
      reloaded.push(model)
      return []
    },
  } as unknown as Repository
  const begins = async (changes: number): Promise<string[]> => {
    const reloads = new Reloads(root, (text) => printed.push(text), 3)
    for (let i = 0; i < changes; i += 1) reloads.changed(`${root}/m/1/${i}.ts`)
    await reloads.begin(repository, [])
    await reloads.end()
    return reloaded.splice(0).sort()
  }
  expect(await begins(3)).toEqual(['m'])
  expect(await begins(4)).toEqual(['m', 'n'])
})

test('the imports of a model that was just removed are none', () => {
  expect([...importsOf('/missing')]).toEqual([])
})
