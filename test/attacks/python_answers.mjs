/**
 * Python models that ask, answer, print and log without end: what a model's code can do to the server that it runs in.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { pythonModels } from '../../scripts/lib/venv.mjs'
import { again, bounded, boundedLog, run } from './lib/code.mjs'
import { server } from './lib/servers.mjs'
import { Target } from './lib/target.mjs'
import { pause, until } from './lib/wait.mjs'

/** Runs its input, which sets `answer`. */
const CODE = `import os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

keep = []


def text(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value)], dtype=object))])


def call(model, code, timeout=0):
    tensor = pb_utils.Tensor("CODE", np.array([code], dtype=object))
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[tensor], timeout=timeout)


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy().reshape(-1)[0].decode()
            scope = dict(globals(), request=request, code=code, answer=text("done"))
            exec(compile(code, "<code>", "exec"), scope)
            answers.append(scope["answer"])
        return answers
`

const python = server('Python models that run code', {
  env: pythonModels(),
  models: (root) => {
    const io = [[['CODE', 'TYPE_STRING', [1]]], [['OUT', 'TYPE_STRING', [1]]]]
    for (const [name, count] of [
      ['one', 1],
      ['other', 1],
      ['some', 8],
      ['poisoned', 1],
    ]) {
      const more = `instance_group [ { count: ${count} kind: KIND_CPU } ]\n`
      writeModel(root, name, { config: config('python', 0, ...io, more), files: { '1/model.py': CODE } })
    }
  },
})

/** Processes that hang for nobody have a second. */
const leaving = server('Python models that are loaded and unloaded', {
  ...python,
  flags: ['--model-control-mode=explicit', '--load-model=*', '--backend-config=python,exit-grace-seconds=1'],
})
/** The graces that are the default. */
const exiting = server('Python models of a server that exits', python)

/** Has a model run code that never ends, and leaves once it runs. */
async function abandon(t, code) {
  const mark = join(t.root, `.began${process.hrtime.bigint()}`)
  const body = JSON.stringify({
    inputs: [
      { name: 'CODE', shape: [1], datatype: 'BYTES', data: [`open(${JSON.stringify(mark)}, "w").close()\n${code}`] },
    ],
  })
  const socket = await t.socket()
  await socket.send(`POST /v2/models/one/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  await until(() => existsSync(mark), { seconds: 60 })
  t.check(existsSync(mark), `never began: ${code}`)
  socket.destroy()
}

const HANGS = ['while True: pass', 'time.sleep(86400)', 'import signal; os.kill(os.getpid(), signal.SIGSTOP)']

/** How many processes a server has started that are there. */
function children(pid) {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) => {
    try {
      return readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean)
    } catch (error) {
      // The thread has ended since; its children are another thread's then.
      if (error.code === 'ENOENT' || error.code === 'ESRCH') return []
      throw error
    }
  }).length
}

/** Has a server end by SIGTERM: its exit code, and after how many seconds. */
async function terminated(t) {
  const from = performance.now()
  t.child.kill('SIGTERM')
  await until(() => !t.isAlive, { seconds: 60 })
  return { code: t.child.exitCode, seconds: (performance.now() - from) / 1000 }
}

export const rows = [
  {
    attack: 'a Python model that calls itself, whose calls call it again, until none of its instances is left',
    limit:
      'The `timeout` of a call also ends its wait for an instance, and the called model is not blocked (B-SEC-07).',
    server: python,
    run: (t) =>
      bounded(
        t,
        'some',
        'answer = text("deep")\nr = call("some", code, 2000000).exec()\nif r.has_error(): raise ' +
          'ValueError(r.error().message())',
        /^500 .*timeout expired/s,
      ),
  },
  {
    attack: 'two clients at once, each in a Python model whose only instance calls the model that the other one holds',
    limit:
      'After `engine::model_call::MODEL_CYCLE_WAIT_NS_MAX` 10 s, checked each second (`engine::cycles`), one of the ' +
      'calls fails and names the models. The other client is answered (B-SEC-07).',
    server: python,
    async run(t) {
      const place = join(t.root, `.meet${process.hrtime.bigint()}`)
      const from = performance.now()
      const client = (mine, model, whose) => {
        const meets =
          `open(${JSON.stringify(place + mine)}, "w").close()\nwhile not ` +
          `os.path.exists(${JSON.stringify(place + whose)}): time.sleep(0.01)`
        return run(
          t,
          mine,
          `${meets}\nr = call(${JSON.stringify(model)}, "pass").exec()\nif r.has_error(): answer = ` +
            'text(r.error().message())',
        )
      }
      const { result, worstMs } = await t.health(() =>
        Promise.all([client('one', 'other', 'other'), client('other', 'one', 'one')]),
      )
      const seconds = (performance.now() - from) / 1000
      const failed = result.filter(({ said }) =>
        /^a call waited for 10 s .*'one'.*'other'|^a call waited for 10 s .*'other'.*'one'/s.test(said),
      )
      t.check(failed.length === 1 && result.some(({ said }) => said === 'done'), `answered ${JSON.stringify(result)}`)
      t.check(seconds < 20, `took ${seconds.toFixed(1)} s`)
      for (const model of ['one', 'other'])
        t.check((await run(t, model, 'pass')).said === 'done', `${model} does not answer any more`)
      return `one of two failed after ${seconds.toFixed(1)} s, health within ${worstMs.toFixed(0)} ms`
    },
  },
  {
    attack: 'a Python model that starts 100,000 calls and takes no answer',
    limit: 'A process has at most 1024 calls in progress; further calls fail (B-SEC-07).',
    server: python,
    run: (t) =>
      bounded(
        t,
        'one',
        `for _ in range(${t.volume(5000, 100_000)}): keep.append(call("some", ` +
          '"pass").exec(decoupled=True))\nkeep.clear()',
        /^(200|500) /,
      ),
  },
  {
    attack: 'a Python model that makes a million series of a metric',
    limit: 'The number of series of all models together is limited (B-SEC-07, O-21).',
    server: python,
    run: (t) =>
      bounded(
        t,
        'one',
        'f = pb_utils.MetricFamily(name="many", description="", kind=pb_utils.MetricFamily.GAUGE)\nfor i in ' +
          'range(1000000): keep.append(f.Metric(labels={"i": str(i)}))',
        /^500 .*TritonModelException/s,
      ),
  },
  {
    attack: 'a Python model that answers with 100,000 tensors',
    limit: 'The number of tensors of a response is limited (`TENSORS_MAX` of the runner protocol, B-SEC-07).',
    server: python,
    run: (t) =>
      bounded(
        t,
        'one',
        'answer = pb_utils.InferenceResponse([pb_utils.Tensor(f"T{i}", np.zeros(1)) for i in range(100000)])',
        /^500 /,
      ),
  },
  {
    attack: 'a Python model that answers with 3 GB',
    limit: 'The segments of an instance in one direction are limited (B-SEC-07).',
    server: python,
    run: (t) =>
      bounded(
        t,
        'one',
        'answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(3 << 30, np.uint8))])',
        /^(500|503) /,
      ),
  },
  {
    attack: 'a Python model whose error is 256 MB',
    limit: 'The text of an error and a frame are limited (`FRAME_BYTES_MAX` of the runner protocol).',
    server: python,
    run: (t) => bounded(t, 'one', 'raise ValueError("x" * (256 << 20))', /^500 /),
  },
  {
    attack: 'a Python model that logs and prints a gigabyte each',
    limit:
      "The log accepts a limited number of output bytes each second (B-PYR-10). A line of the model's `Logger` has " +
      'at most `MESSAGE_BYTES_MAX`, with any number of lines.',
    server: python,
    async run(t) {
      const lines = t.volume(1 << 12, 1 << 14)
      const code = (what) => `line = "x" * 65535\nfor _ in range(${lines}): ${what}`
      return boundedLog(t, lines, code('print(line)'), code('pb_utils.Logger.log_info(line)'))
    },
  },
  {
    attack:
      'clients that leave requests behind which a Python model never ends, or which stop its process, with ' +
      'an unload and a load after each',
    limit:
      'After `exit-grace-seconds`, the process of a model that left service is ended if no client waits for its ' +
      'work; the log names it (B-PYR-09).',
    server: leaving,
    async run(t) {
      const before = children(t.pid)
      let most = 0
      for (const code of [...HANGS, ...HANGS]) {
        await abandon(t, code)
        for (const what of ['unload', 'load']) {
          const answer = await t.post(`/v2/repository/models/one/${what}`, '{}')
          t.check(answer.status === 200, `${what}: ${answer.status} ${answer.text}`)
        }
        most = Math.max(most, children(t.pid))
      }
      const kills = () => t.output().split('one_0_0: the process is killed: its model was unloaded').length - 1
      // A kill is seen in the table of processes before its line has come through the pipe of the log.
      await until(() => children(t.pid) === before && kills() === 2 * HANGS.length, { seconds: 60 })
      const after = children(t.pid)
      t.check(after === before, `${before} processes before, and ${after} after`)
      t.check(kills() === 2 * HANGS.length, `${kills()} lines of the log`)
      return `${before} processes before, at most ${most} meanwhile, ${after} after`
    },
  },
  {
    attack: 'SIGTERM of a server with a request that its client left behind and a Python model never ends',
    limit:
      'The process ends after `engine::limits::EXIT_ABANDONED_MAX` 10 s, or earlier with a shorter ' +
      '`exit-grace-seconds`. The exit code is 0 (B-PYR-09).',
    waits: true,
    async run(t) {
      const other = await Target.start(exiting)
      try {
        // test_python_unload.py does the same with a loop, which takes ten seconds of CPU, with --nightly.
        await abandon(other, HANGS[1])
        const { code, seconds } = await terminated(other)
        t.check(code === 0 && seconds < 25, `it ended with ${code} after ${seconds.toFixed(1)} s`)
        return `ended with ${code} after ${seconds.toFixed(1)} s`
      } finally {
        await other.stop()
      }
    },
  },
  {
    attack: 'requests that end the process of a Python model, sent again and again until each has ended one',
    limit: 'A restart waits at most 30 s; then the model serves again without an operator (B-PYR-07).',
    server: python,
    async run(t) {
      const deaths = t.volume(6, 9)
      let refused = 0
      for (let ended = 0; ended < deaths;) {
        const { status, said } = await run(t, 'poisoned', 'os._exit(3)')
        t.check(
          /^500 .*is not healthy|^503 .*started again/s.test(`${status} ${said}`),
          `answered ${status} ${said.slice(0, 300)}`,
        )
        if (status === 500) ended++
        else refused++
        if (status === 503) await pause(20)
      }
      const from = performance.now()
      const next = await again(t, 'poisoned')
      t.check(next.status === 200, `then answered ${next.status} ${next.said.slice(0, 300)}`)
      const ready = await t.get('/v2/health/ready')
      t.check(ready.status === 200, `readiness is ${ready.status}`)
      return (
        `${deaths} deaths, ${refused} requests refused meanwhile; served again ` +
        `${((performance.now() - from) / 1000).toFixed(1)} s after the last`
      )
    },
  },
]
