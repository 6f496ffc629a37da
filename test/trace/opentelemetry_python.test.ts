/** Mode opentelemetry with Python models: contexts of models and parents of their calls (O-47, B-PY-08, B-PY-13). */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { TestServer } from '../server/harness.js'
import { Collector } from './collector.js'

const [TRACE, PARENT] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
const CONFIG =
  'backend: "python"\ninput [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]\noutput [ { name: "OUT" ' +
  'data_type: TYPE_STRING dims: [ 1 ] } ]\n'

/**
 * Returns the contexts that it and the model below got. `traced` and `untraced` call that with and without the trace.
 */
const MODEL = `import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            told = [request.trace().get_context()]
            what = request.inputs()[0].as_numpy()[0].decode()
            if what != "leaf":
                more = {"trace": request.trace()} if what == "traced" else {}
                leaf = pb_utils.Tensor("IN", np.array([b"leaf"], dtype=object))
                call = pb_utils.InferenceRequest(
                    model_name="leaf", requested_output_names=["OUT"], inputs=[leaf], **more)
                below = call.exec()
                told += json.loads(below.output_tensors()[0].as_numpy()[0])
            out = np.array([json.dumps(told).encode()], dtype=object)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return answers
`

const directory = mkdtempSync(join(tmpdir(), 'nereid-told-'))
let collector: Collector
let server: TestServer

beforeAll(async () => {
  await pythonEnvironment()
  for (const name of ['top', 'leaf']) {
    mkdirSync(join(directory, name, '1'), { recursive: true })
    writeFileSync(join(directory, name, 'config.pbtxt'), CONFIG)
    writeFileSync(join(directory, name, '1', 'model.py'), MODEL)
  }
  collector = await Collector.start()
  const settings = [
    'mode=opentelemetry',
    `opentelemetry,url=127.0.0.1:${collector.port}/v1/traces`,
    'opentelemetry,bsp_schedule_delay=20',
    'level=TIMESTAMPS',
    'rate=0',
  ]
  server = await TestServer.start(directory, [
    `--backend-config=python,python-executable=${PYTHON}`,
    ...settings.map((one) => `--trace-config=${one}`),
  ])
}, 300_000)

afterAll(async () => {
  expect(await server.stop()).toBe(0)
  await collector.stop()
  rmSync(directory, { recursive: true, force: true })
})

beforeEach(() => collector.clear())

interface Told {
  traceparent: string
  tracestate?: string
}

async function ask(what: string, headers: Record<string, string> = {}): Promise<(Told | null)[]> {
  const body = JSON.stringify({ inputs: [{ name: 'IN', datatype: 'BYTES', shape: [1], data: [what] }] })
  const answer = await fetch(`${server.url}/v2/models/top/infer`, { method: 'POST', body, headers })
  const { outputs } = (await answer.json()) as { outputs: { data: string[] }[] }
  return (JSON.parse(outputs[0]?.data[0] ?? '') as (string | null)[]).map((text) =>
    text === null ? null : (JSON.parse(text) as Told),
  )
}

const spanId = (name: string): string | undefined => collector.spans.find((span) => span.name === name)?.spanId

test('O-47: a model gets the context of its own span', async () => {
  const told = await ask('traced', { traceparent: `00-${TRACE}-${PARENT}-00`, tracestate: 'vendor=1' })
  await collector.until(5)
  expect(collector.tree()).toBe('InferRequest(top(compute leaf(compute)))')
  const of = (name: string): Told => ({ traceparent: `00-${TRACE}-${spanId(name)}-01`, tracestate: 'vendor=1' })
  expect(told).toEqual([of('top'), of('leaf')])
})

test('O-47, B-PY-13: a call without the trace has none', async () => {
  const [top, leaf] = await ask('untraced', { traceparent: `00-${TRACE}-${PARENT}-01` })
  await collector.until(3)
  expect(collector.tree()).toBe('InferRequest(top(compute))')
  expect([top, leaf]).toEqual([{ traceparent: `00-${TRACE}-${spanId('top')}-01` }, null])
})

test('O-47: an untraced request has no context', async () => {
  expect(await ask('traced')).toEqual([null, null])
})

test('O-47: without a client context, the trace id is that of the exported trace', async () => {
  // The last test, because the others need a rate of 0.
  const set = await fetch(`${server.url}/v2/trace/setting`, {
    method: 'POST',
    body: JSON.stringify({ trace_rate: '1' }),
  })
  expect(set.status).toBe(200)
  const told = await ask('traced')
  const spans = await collector.until(5)
  expect(new Set(spans.map((span) => span.traceId)).size).toBe(1)
  const of = (name: string): Told => ({ traceparent: `00-${spans[0]?.traceId}-${spanId(name)}-01` })
  expect(told).toEqual([of('top'), of('leaf')])
})
