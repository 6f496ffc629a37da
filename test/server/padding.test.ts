/** Error texts for invalid parameters `nereid.padding.…`; crates/engine/tests/all/padding.rs tests each rule. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { config, ensemble, step, writeModel } from '../../scripts/models/repository.mjs'
import { TestServer } from './harness.js'

const parameter = (tensor: string, value: string) =>
  `parameters { key: "nereid.padding.${tensor}" value { string_value: "${value}" } }\n`
const batching = 'dynamic_batching { }\n'
const both = (value: string) => parameter('INPUT0', value) + parameter('OUTPUT0', value)
const tensor = (kind: string, dims: number[]) => [[kind, 'TYPE_INT32', dims]]
const identity = (more: string, batch = 8) =>
  config('identity', batch, tensor('INPUT0', [-1]), tensor('OUTPUT0', [-1]), more)

/** By model: its configuration, and why it is not served; null = it is. */
const MODELS: Record<string, [string, string | null]> = {
  good: [identity(batching + both('[n]')), null],
  misspelt: [
    identity(batching + parameter('INPUT', '[n]')),
    "parameter 'nereid.padding.INPUT' of model 'misspelt' is '[n]': the model has no input or output " +
      "'INPUT'; the key is 'nereid.padding.' and the name of a tensor; inputs: 'INPUT0'; outputs: 'OUTPUT0'",
  ],
  malformed: [
    identity(batching + both('dim=0')),
    "parameter 'nereid.padding.INPUT0' of model 'malformed' is 'dim=0': expected the dims with a name for " +
      "each that is padded, and perhaps a value, as in '[tokens] value=0'",
  ],
  forgotten: [
    identity(batching + parameter('INPUT0', '[n]')),
    "output 'OUTPUT0' of model 'forgotten' has dims [-1] and no parameter 'nereid.padding.OUTPUT0': write " +
      "them with the name of each padded dimension in the place of its -1, for instance '[n]', or '[-1]' when " +
      'none of them is',
  ],
  value: [
    identity(batching + parameter('INPUT0', '[n] value=0.5') + parameter('OUTPUT0', '[n]')),
    "parameter 'nereid.padding.INPUT0' of model 'value' is '[n] value=0.5': '0.5' is no value of data_type TYPE_INT32",
  ],
  unbatched: [
    identity(both('[n]')),
    "model 'unbatched' has parameter 'nereid.padding.INPUT0', but its requests are not batched: add " +
      "'dynamic_batching { }', or remove the parameter",
  ],
  no_batches: [
    identity(batching + both('[n]'), 0),
    "model 'no_batches' has parameter 'nereid.padding.INPUT0', but its max_batch_size is 0: only requests " +
      'that run together are padded, so it must be 2 or more',
  ],
}

const directory = mkdtempSync(join(tmpdir(), 'nereid-padding-'))
let server: TestServer

beforeAll(async () => {
  for (const [name, [text]] of Object.entries(MODELS)) writeModel(directory, name, { config: text })
  const steps = [step('good', -1, 'INPUT0', 'OUTPUT0')]
  writeModel(directory, 'pipeline', {
    config: ensemble(8, tensor('INPUT0', [-1]), tensor('OUTPUT0', [-1]), steps) + both('[n]'),
  })
  server = await TestServer.start(directory, ['--exit-on-error=false'], { path: '/v2/models/good/ready' })
})
afterAll(async () => {
  await server.stop()
  rmSync(directory, { recursive: true, force: true })
})

test('each error names the parameter, the value and a valid one', async () => {
  const answer = await fetch(`${server.url}/v2/repository/index`, { method: 'POST' })
  const index = ((await answer.json()) as { name: string; state?: string; reason?: string }[]).filter(
    ({ name }) => name !== 'pipeline',
  )
  const found = Object.fromEntries(index.map(({ name, state, reason }) => [name, state === 'READY' ? null : reason]))
  const expected = Object.entries(MODELS).map(([name, [, reason]]) => [
    name, reason === null ? null : `Invalid argument: ${reason}`
  ])
  expect(found).toEqual(Object.fromEntries(expected))
})

test('an ensemble must leave padding to its models', () => {
  expect(server.output()).toContain(
    "model 'pipeline' has parameter 'nereid.padding.INPUT0', but it is an ensemble, which runs nothing " +
      'itself: give the parameter to the models it is made of',
  )
})
