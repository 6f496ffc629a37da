/** Directories of models, when the thread that creates them restarts. */
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { DownloadCache } from '../../src/stores/cache.js'
import { Mirror } from '../../src/stores/mirror.js'
import { ROOT, storage } from './memory.js'

test('a restarted thread leaves the directories of the thread before it', async () => {
  const memory = storage({ 'a/1/model': 'a', 'b/1/model': 'b' })
  const directory = join(ROOT, 'root')
  mkdirSync(directory)
  const { signal } = new AbortController()
  const start = async () => {
    const mirror = new Mirror(memory, 's3://bucket', new DownloadCache(join(ROOT, 'cache'), 0), directory)
    const listing = await mirror.list(signal)
    const make = (model: string): Promise<string> =>
      mirror.materialise(model, listing.get(model)?.stamp ?? '', signal, () => {})
    return { mirror, make }
  }
  const first = await start()
  const [a, b] = [await first.make('a'), await first.make('b')]
  const second = await start()
  const again = await second.make('a')
  await second.mirror.remove(await second.make('a'))
  expect([a, b, again].map((tree) => readFileSync(join(tree, '1/model'), 'utf8'))).toEqual(['a', 'b', 'a'])
})
