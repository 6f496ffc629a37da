// `nereid check` of models whose backend is a library of C: what keeps it from loading is named before a load.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import { files, runs } from './harness.js'

const CONFIG = `backend: "own"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

/** A repository with one model, and its backend made of this source. */
async function checked(source: string) {
  const directory = files({ 'models/m/config.pbtxt': CONFIG, 'models/m/1/': '', 'backends/own/': '' })
  const library = join(directory, 'backends/own/libtriton_own.so')
  const api = join(directory, 'libtritonserver.so')
  execFileSync('cc', ['-shared', '-Wl,-soname,libtritonserver.so', '-x', 'c', '-', '-o', api], { input: 'int api;' })
  const compiler = ['-shared', '-fPIC', '-x', 'c', '-', '-x', 'none', '-Wl,--no-as-needed', api, '-o', library]
  if (source !== '') execFileSync('cc', compiler, { input: source })
  const all = [join(directory, 'models'), `--backend-directory=${join(directory, 'backends')}`]
  return await runs(check, all, directory)
}

const EXECUTE = 'void* TRITONBACKEND_ModelInstanceExecute(void) { return 0; }\n'

test('a library that lacks nothing has no problems', async () => {
  const out = 'only with --load: what the backend own checks (m)\n1 model, 0 errors, 0 warnings\n'
  expect(await checked(EXECUTE)).toEqual({ code: 0, out, err: '' })
})

test('a library without its entry point is an error with the path of the library', async () => {
  const { code, out } = await checked('int nothing;')
  expect(code).toBe(1)
  const begin = "./backends/own/libtriton_own.so: error: unable to find required entrypoint 'TRITONBACKEND_Model"
  expect(out.slice(0, begin.length)).toBe(begin)
  expect(out).toContain('1 model, 1 error, 0 warnings\n')
})

test('a function that Triton lacks is an error, one without effect here a warning', async () => {
  const use = (name: string) => `${EXECUTE}void* ${name}(void); void* use(void) { return ${name}(); }`
  const unknown = await checked(use('TRITONBACKEND_Tomorrow'))
  expect([unknown.code, unknown.out]).toEqual([1, expect.stringMatching(/undefined symbol: TRITONBACKEND_Tomorrow/)])
  const stub = await checked(use('TRITONSERVER_InferenceTraceNew'))
  expect([stub.code, stub.out]).toEqual([0, expect.stringMatching(/warning: .* uses functions of Triton that only/)])
})

test('a library that is missing altogether keeps the text of a load', async () => {
  const { code, out } = await checked('')
  expect([code, out]).toEqual([1, expect.stringMatching(/unable to find backend library for backend 'own'/)])
})
