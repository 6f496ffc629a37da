// `nereid doctor` over texts from repositories: images of other backends, client tools, templates, scripts.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import * as doctor from '../../src/tools/doctor/index.js'
import { files, runs } from './harness.js'

const ONNX = `backend: "onnxruntime"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
`
const MODELS = { 'models/m/config.pbtxt': ONNX, 'models/m/1/model.onnx': '' }

interface Said {
  code: number
  out: string
  err: string
  /** Lines of the form `verdict subject`. */
  lines: string[]
  commands: string[]
  diff: string
}

async function examined(
  name: string,
  text: string,
  more: Record<string, string> = {},
  args: string[] = [],
): Promise<Said> {
  const directory = files({ ...more, [name]: text })
  const json = await runs(doctor, ['--format=json', ...args, join(directory, name)], directory)
  if (json.code === 2) return { ...json, lines: [], commands: [], diff: '' }
  const { findings, commands, diffs } = JSON.parse(json.out) as {
    findings: { line: number | null; subject: string; verdict: string; text: string }[]
    commands: { command: string[] }[]
    diffs: string[]
  }
  const lines = findings.map(
    ({ line, subject, verdict, text: found }) => `${line ?? ''} ${verdict} ${subject}: ${found}`,
  )
  return { ...json, lines, commands: commands.map(({ command }) => command.join(' ')), diff: diffs.join('') }
}

describe('an image that is made for another backend is not replaced', () => {
  const cases: [string, string][] = [
    ['nvcr.io/nvidia/tritonserver:24.07-trtllm-python-py3', 'TensorRT-LLM engines are not in this release'],
    ['registry.local:5000/ml/tritonserver-dali:1.2', 'DALI pipelines are not in this release'],
    ['registry.local:5000/ml/tritonserver-trtllm:1.2', 'TensorRT-LLM engines are not in this release'],
  ]
  test.each(cases)('%s', async (image, why) => {
    const compose =
      `services:\n  llm:\n    image: ${image}\n    command: tritonserver --model-repository=/models\n ` +
      '   volumes: [ llm:/models ]\nvolumes: { llm: {} }\n'
    const manifest =
      `apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: t\n      image: ${image}\n      args: ` +
      '[tritonserver, --model-repository=/models]\n'
    for (const [name, text] of [
      ['compose.yaml', compose],
      ['pod.yaml', manifest],
      ['run.sh', `docker run --gpus all --rm -p 8000:8000 ${image} tritonserver --model-repository=/models\n`],
      ['Dockerfile', `FROM ${image}\nCMD ["tritonserver", "--model-repository=/models"]\n`],
    ] as const) {
      const { code, lines, commands, diff } = await examined(name, text)
      expect([code, commands, diff], name).toEqual([1, [], ''])
      expect(
        lines.filter((line) => line.includes(' impossible ')),
        name,
      ).toEqual([expect.stringContaining(`impossible image ${image}: `)])
      expect(lines.join('\n'), name).toContain(why)
    }
  })

  test('unless its models are here and none of them uses that backend', async () => {
    const script =
      'docker run -v ./models:/models registry.local/tritonserver-dali:1.2 tritonserver --model-repository=/models\n'
    const served = await examined('run.sh', script, MODELS)
    expect(served.lines.join('\n')).toContain(
      'change image registry.local/tritonserver-dali:1.2: take nereid:VERSION, which docs/containers.md makes (none ' +
        'of its models uses dali',
    )
    expect(served.commands).toEqual(['nereid --model-repository=./models'])
    const other = await examined('run.sh', script, {
      ...MODELS,
      'models/t/config.pbtxt': 'backend: "dali"',
      'models/t/1/model.dali': '',
    })
    expect(other.lines.join('\n')).toContain('impossible image')
    expect(other.lines.join('\n')).toContain('impossible model t')
    expect(other.diff).toBe('')
  })

  test('an image for TensorFlow is replaced', async () => {
    const script =
      'docker run -v ./models:/models nvcr.io/nvidia/tritonserver:23.10-tf2-python-py3 tritonserver ' +
      '--model-repository=/models\n'
    const { lines } = await examined('run.sh', script, {
      'models/s/1/model.savedmodel/saved_model.pb': 'graph',
      'models/t/config.pbtxt': 'platform: "tensorflow_graphdef"',
      'models/t/1/model.graphdef': 'graph',
    })
    expect(lines.join('\n')).toContain(
      'change image nvcr.io/nvidia/tritonserver:23.10-tf2-python-py3: Triton 2.39, backends tensorflow and ' +
        'python; take nereid-python:VERSION, which docs/containers.md makes (models of tensorflow need the package ' +
        'tensorflow in it)',
    )
    expect(lines.join('\n')).toContain('same model s: tensorflow, version 1')
    expect(lines.join('\n')).toContain(
      'same model s: Python: its interpreter needs numpy, tensorflow; NEREID_PYTHON names another interpreter',
    )
    expect(lines.join('\n')).toMatch(
      /change model t: failed to load model 't': '.*model\.graphdef' is a GraphDef, .*python -c /,
    )
  })

  test('one for PyTorch is, and the image that takes its place needs torch', async () => {
    const script =
      'docker run -v ./models:/models nvcr.io/nvidia/tritonserver:23.10-pyt-python-py3 tritonserver ' +
      '--model-repository=/models\n'
    const io =
      'input [ { name: "A__0" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "B__0" data_type: ' +
      'TYPE_FP32 dims: [ 1 ] } ]\n'
    const { lines, commands } = await examined('run.sh', script, {
      'models/t/config.pbtxt': `platform: "pytorch_libtorch"\n${io}`,
      'models/t/1/model.pt': 'PK',
    })
    expect(lines.join('\n')).toContain(
      'change image nvcr.io/nvidia/tritonserver:23.10-pyt-python-py3: Triton 2.39, backends pytorch and ' +
        'python; take nereid-python:VERSION, which docs/containers.md makes (models of pytorch need the package ' +
        'torch in it)',
    )
    expect(lines.join('\n')).toContain('same model t: pytorch, version 1')
    expect(lines.join('\n')).toContain(
      'same model t: Python: its interpreter needs numpy, torch; NEREID_PYTHON names another interpreter',
    )
    expect(commands).toEqual(['nereid --model-repository=./models'])
  })
})

test('an image for vLLM is replaced by one with Python', async () => {
  const image = 'nvcr.io/nvidia/tritonserver:24.07-vllm-python-py3'
  const script = (models: string): string =>
    `docker run -v ${models}:/models ${image} tritonserver --model-repository=/models\n`
  const reported =
    `change image ${image}: Triton 2.48, backends vllm and python; take nereid-python:VERSION, which ` +
    'docs/containers.md makes (models of vllm need the package vllm in it)'
  const elsewhere = await examined('run.sh', script('llm'))
  expect(elsewhere.lines.join('\n')).toContain(reported)
  expect(elsewhere.diff).toContain(
    '+docker run -v llm:/models nereid-python:VERSION tritonserver --model-repository=/models\n',
  )
  const here = await examined('run.sh', script('./models'), {
    'models/llm/config.pbtxt': 'backend: "vllm"\n',
    'models/llm/1/model.json': '{"model":"facebook/opt-125m"}',
  })
  expect(here.lines.join('\n')).toContain(reported)
  expect(here.lines.join('\n')).toContain(
    'same model llm: Python: its interpreter needs numpy, vllm; NEREID_PYTHON names another interpreter',
  )
  expect(here.commands).toEqual(['nereid --model-repository=./models'])
})

test('placeholders of documentation are text, and the whole image is replaced', async () => {
  const image = 'nvcr.io/nvidia/tritonserver'
  const quick = await examined(
    'run.sh',
    `docker run --gpus=1 --rm --net=host -v \${PWD}/models:/models ${image}:<xx.yy>-py3 tritonserver ` +
      '--model-repository=/models\n',
    MODELS,
  )
  expect(quick.lines).toContainEqual(
    expect.stringContaining(`change image ${image}:<xx.yy>-py3: all backends of Triton; take nereid-gpu:VERSION, `),
  )
  expect(quick.diff).toContain(
    '+docker run --gpus=1 --rm --net=host -v ${PWD}/models:/models nereid-gpu:VERSION tritonserver ' +
      '--model-repository=/models\n',
  )

  const mounted = await examined(
    'run.sh',
    `docker run --rm -v</full/path/to/models>:/models ${image}:24.01-py3 tritonserver --model-repository=/models\n`,
  )
  expect(mounted.lines).toContainEqual(expect.stringContaining(`change image ${image}:24.01-py3: Triton 2.42, `))
  expect(mounted.lines).toContainEqual(expect.stringContaining('differs shared memory in 24.01-py3: '))
  expect(mounted.lines).toContain(
    '1 same mount /models: its directory is known only at run time: run doctor on it there',
  )
  expect(mounted.diff).toContain(
    '+docker run --rm -v</full/path/to/models>:/models nereid:VERSION tritonserver --model-repository=/models\n',
  )

  const options = await examined(
    'run.sh',
    `docker run <your options> ${image}:<tag> tritonserver --model-repository <path> > server.log 2>&1\n`,
  )
  expect(options.diff).toContain(
    '+docker run <your options> nereid:VERSION tritonserver --model-repository <path> > server.log 2>&1\n',
  )

  const pulled = await examined('run.sh', `docker pull ${image}:<xx.yy>-py3\n`, {}, ['--image=nereid:1'])
  expect(pulled.diff).toContain('+docker pull nereid:1\n')

  const built = await examined(
    'Dockerfile',
    `FROM ${image}:<xx.yy>-py3 AS base\nCMD ["tritonserver", "--model-repository=/models"]\n`,
  )
  expect(built.lines).toContainEqual(expect.stringContaining(`change image ${image}:<xx.yy>-py3: `))
  expect(built.diff).toContain('+FROM nereid:VERSION AS base\n')
})

test('images of client tools are left alone, with their surroundings', async () => {
  const script = `docker run --gpus all --net=host -it --rm -v $(pwd):/work nvcr.io/nvidia/tritonserver:24.05-py3-sdk bash
docker run --rm --net=host nvcr.io/nvidia/tritonserver:24.05-py3-sdk perf_analyzer -m m -u localhost:8000
`
  const sdk = await examined('bench.sh', script)
  expect([sdk.code, sdk.diff, sdk.lines]).toEqual([
    0,
    '',
    [1, 2].map((line) =>
      expect.stringMatching(`^${line} same image nvcr.io/nvidia/tritonserver:24.05-py3-sdk: clients`),
    ),
  ])

  const dockerfile = `FROM nvcr.io/nvidia/tritonserver:23.12-py3-sdk
RUN apt-get update && apt-get install -y jq
COPY client.py /workspace
CMD ["python3", "client.py"]
`
  const built = await examined('Dockerfile', dockerfile)
  expect([built.code, built.diff, built.lines]).toEqual([0, '', [expect.stringMatching('^1 same image')]])

  const job = `apiVersion: batch/v1
kind: Job
metadata: { name: load-test }
spec:
  template:
    spec:
      containers:
        - name: perf
          image: nvcr.io/nvidia/tritonserver:24.05-py3-sdk
          command: [perf_analyzer, -m, m, -u, triton:8001, -i, grpc]
          resources: { limits: { nvidia.com/gpu: 1 } }
`
  expect((await examined('job.yaml', job)).code).toBe(0)
})

describe('KServe', () => {
  test('runtimes and services of other servers are left alone', async () => {
    const manifest = `apiVersion: serving.kserve.io/v1alpha1
kind: ClusterServingRuntime
metadata: { name: kserve-mlserver }
spec:
  supportedModelFormats:
    - { name: sklearn, version: "1" }
    - { name: xgboost, version: "1" }
  containers:
    - name: kserve-container
      image: docker.io/seldonio/mlserver:1.5.0
      env: [ { name: MLSERVER_HTTP_PORT, value: "8080" } ]
---
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: { name: torchserve }
spec:
  supportedModelFormats: [ { name: pytorch } ]
  containers: [ { name: kserve-container, image: "pytorch/torchserve-kfs:0.9.0", args: [torchserve, --start] } ]
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: { name: iris }
spec: { predictor: { model: { modelFormat: { name: sklearn }, runtime: kserve-mlserver, storageUri: "gs://bucket/iris" } } }
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: { name: llama }
spec: { predictor: { model: { modelFormat: { name: huggingface }, args: [--model_name=llama] } } }
`
    const { code, lines, diff } = await examined('runtimes.yaml', manifest)
    expect([code, diff]).toEqual([0, ''])
    expect(lines.every((line) => line.endsWith('is not Triton: not changed'))).toBe(true)
    expect(lines).toHaveLength(4)
  })

  test('a service that names the format of Triton and no runtime runs on Triton', async () => {
    const manifest =
      'apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: { name: a }\nspec: { ' +
      'predictor: { model: { modelFormat: { name: triton }, storageUri: "pvc://models" } } }\n'
    expect((await examined('a.yaml', manifest)).lines.join('\n')).toContain(
      'make a ServingRuntime with an image of Nereid',
    )
  })
})

test('Kubernetes objects that start a Triton and are no pods', async () => {
  const manifest = `apiVersion: machinelearning.seldon.io/v1
kind: SeldonDeployment
metadata: { name: simple }
spec:
  predictors:
  - name: default
    graph: { implementation: TRITON_SERVER, modelUri: "gs://models/simple", name: simple }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: start }
data:
  run.sh: |
    exec tritonserver --model-repository=/models
---
apiVersion: v1
kind: ConfigMap
metadata: { name: notes }
data: { text: "tritonserver is run by the platform team" }
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: { name: cnn }
spec: { predictor: { model: { modelFormat: { name: pytorch }, runtime: kserve-tritonserver, storageUri: "gs://models/cnn" } } }
---
apiVersion: v1
kind: Pod
metadata: { name: t }
spec:
  containers:
  - name: t
    image: "nereid:1"
    args: [tritonserver, --model-repository=/m]
    livenessProbe: { exec: { command: [curl, localhost:8000/v2/health/live] } }
`
  const { lines } = await examined('all.yaml', manifest)
  expect(lines.filter((line) => !/ same /.test(line))).toEqual([
    '1 change SeldonDeployment simple: Seldon starts the image of Triton for it: name an image of Nereid in ' +
      'its componentSpecs',
    '9 differs ConfigMap start: has a script that starts Triton: run doctor on the script as a file',
    '24 change runtime: kserve-tritonserver: name a ServingRuntime with an image of Nereid',
    '34 change livenessProbe: curl localhost:8000/v2/health/live: curl may not be in the image: write ' +
      'httpGet with /v2/health/live',
  ])
  expect(lines).toContain('16 same ConfigMap notes: is not changed')
})

describe('docker run in scripts', () => {
  const TRITON = 'nvcr.io/nvidia/tritonserver:24.05-py3'

  test('options in a variable, known or not, in front of the image', async () => {
    const check = async (script: string, reported: string | null): Promise<void> => {
      const { lines, commands, diff } = await examined('run.sh', script, MODELS)
      const all = lines.join('\n')
      expect(all, script).toContain(`change image ${TRITON}: Triton 2.46, all backends of Triton; take nereid`)
      expect(commands, script).toEqual(['nereid --model-repository=./models'])
      expect(diff, script).toMatch(/ nereid(?:-gpu)?:VERSION/)
      expect(diff, script).not.toContain(`+docker run nereid`)
      if (reported !== null) expect(all, script).toContain(reported)
    }
    const tail = `-v $PWD/models:/models ${TRITON} tritonserver --model-repository=/models\n`
    await check(
      `docker run $DOCKER_ARGS ${tail}`,
      'same $DOCKER_ARGS: options of docker run that are known only at run time',
    )
    await check(`docker run --rm \${EXTRA_ARGS} ${tail}`, 'same ${EXTRA_ARGS}: options')
    await check(`docker run "\${ARGS[@]}" -d ${tail}`, 'same "${ARGS[@]}": options')
    await check(`docker run $(gpu_flags) ${tail}`, 'same $(gpu_flags): options')
    await check(`ARGS="--gpus all --rm -p 8000:8000"\ndocker run $ARGS ${tail}`, 'differs --gpus all: stays')
    await check(
      `ARGS=(--gpus all --rm)\nARGS+=(-p 8000:8000)\ndocker run "\${ARGS[@]}" ${tail}`,
      'same -p 8000:8000: HTTP',
    )
    await check(`NONE=\ndocker run $NONE ${tail}`, null)
    await check(`sudo docker run ${tail}`, null)
    await check(`nvidia-docker run --rm ${tail}`, null)
  })

  test('an image in a variable is the image', async () => {
    const line = 'docker run --rm -v $PWD/models:/models $TRITON_IMAGE tritonserver --model-repository=/models\n'
    const open = await examined('run.sh', line, MODELS)
    expect(open.lines.join('\n')).toContain(
      'change image $TRITON_IMAGE: its name is known only at run time; take nereid:VERSION',
    )
    expect(open.commands).toEqual(['nereid --model-repository=./models'])
    const both = await examined('run.sh', 'docker run $ARGS "$IMAGE" tritonserver --model-repository=/m\n')
    expect(both.lines.join('\n')).toContain('change image $IMAGE')
    const known = await examined('run.sh', `IMAGE=${TRITON}\ndocker run $IMAGE tritonserver --model-repository=/m\n`)
    expect(known.lines.join('\n')).toContain(`change image ${TRITON}`)
  })

  test('containers that are not Triton are left alone', async () => {
    const { code, lines, diff } = await examined(
      'up.sh',
      'docker run -d --name redis -p 6379:6379 redis:7 redis-server --save 60 1\ndocker run --rm -v $PWD:/w ' +
        '-w /w python:3.11 bash -c "pip install tritonclient[http] && python client.py"\ndocker run $ANY\n',
    )
    expect([code, diff]).toEqual([0, ''])
    expect(lines).toEqual([
      '1 same docker run redis:7: is not Triton: not changed',
      '2 same docker run python:3.11: is not Triton: not changed',
      '3 same docker run $ANY: its image is known only at run time: not changed',
    ])
  })

  test('directories that a script finds by itself', async () => {
    const of = (mount: string, before = ''): string =>
      `#!/bin/bash\n${before}docker run -v ${mount}:/models:ro ${TRITON} tritonserver --model-repository=/models\n`
    for (const script of [
      of('$(pwd)/models'),
      of('"$(pwd)"/models'),
      of('`pwd`/models'),
      of('"$(dirname "$0")/models"'),
      of('$(dirname $(readlink -f $0))/models'),
      of('$(realpath ./models)'),
      of('"${SCRIPT_DIR}/models"', 'SCRIPT_DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" >/dev/null 2>&1 && pwd )"\n'),
      of('$ROOT/deploy/../models', 'ROOT=$(cd $(dirname $0)/.; pwd -P)\n'),
      of('${MODELS:-$(pwd)/models}').replace('${MODELS:-$(pwd)/models}', '${MODELS:-$PWD/models}'),
    ]) {
      const { lines, commands } = await examined('run.sh', script, MODELS)
      expect(commands, script).toEqual(['nereid --model-repository=./models'])
      expect(lines.join('\n'), script).toContain('same mount /models: ./models, examined below')
    }
    const other = await examined('run.sh', of('$(git rev-parse --show-toplevel)/models'))
    expect(other.lines.join('\n')).toContain(
      'same mount /models: its directory is known only at run time: run doctor on it there',
    )
    expect(other.commands).toEqual(['nereid --model-repository=/models'])
    const colons = await examined('run.sh', of('$(docker inspect x:1 | jq -r .path)/m'))
    expect(colons.lines.join('\n')).toContain('same mount /models: its directory is known only at run time')
  })
})

describe('lines of scripts', () => {
  test('lines that only mention a server start none', async () => {
    const script = `#!/usr/bin/env bash
set -e
if [ -z "$(pgrep tritonserver)" ]; then echo "tritonserver is not running"; fi
[[ -x /opt/tritonserver/bin/tritonserver ]] || { echo "no tritonserver"; exit 1; }
[ -z tritonserver ] && exit 1
echo Starting tritonserver --model-repository=/models ...
printf '%s\\n' tritonserver
command -v tritonserver
which tritonserver
ps aux | grep tritonserver
pkill -9 tritonserver || true
docker stop tritonserver
docker rm -f tritonserver
docker logs -f tritonserver --since 1m
docker pull redis:7
kubectl rollout restart deployment tritonserver
cp -r /opt/tritonserver /backup/tritonserver
echo docker run nvcr.io/nvidia/tritonserver:24.05-py3 tritonserver
`
    const { code, lines, commands, diff } = await examined('status.sh', script)
    expect([code, commands, diff]).toEqual([0, [], ''])
    expect(lines).toEqual([' same script: does not start Triton, as far as doctor can see'])
  })

  test('programs in front of the server', async () => {
    const check = async (line: string, reported: string, code = 0): Promise<void> => {
      const output = await examined('start.sh', `${line}\n`, MODELS)
      expect(output.commands, line).toEqual(['nereid --model-repository=./models --http-port=8000'])
      if (reported !== '') expect(output.lines.join('\n'), line).toContain(reported)
      expect(output.code, line).toBe(code)
    }
    const server = 'tritonserver --model-repository=$PWD/models --http-port=8000'
    await check(`numactl --cpunodebind=0 --membind=0 ${server}`, 'same numactl: may stay in front of the server')
    await check(`taskset -c 0-7 ${server} &`, 'same taskset')
    await check(`sudo -E ${server}`, '')
    await check(`exec ${server}`, '')
    await check(`nohup nice -n 5 ${server} > triton.log 2>&1 &`, 'same nice')
    await check(`/usr/bin/custom_launcher -- ${server}`, '')
    await check(`docker exec -it triton ${server}`, '')
    await check(`echo "Starting tritonserver" && ${server}`, '')
    await check(`mpirun --allow-run-as-root -n 1 ${server}`, 'change mpirun: starts processes that share one model', 1)
    await check(
      `mpirun -n 1 ${server} : -n 1 tritonserver --model-repository=/models --http-port=8001`,
      'change mpirun',
      1,
    )
    await check(`bash -c "echo tritonserver; numactl -m 0 ${server.replace('$PWD', '.')}"`, 'same numactl')
  })

  test('docker pull of a Triton is removed, or pulls the given image', async () => {
    const script =
      'set -e\nsudo docker pull nvcr.io/nvidia/tritonserver:24.05-py3\ndocker pull redis:7\ndocker pull ' +
      'nvcr.io/nvidia/tritonserver:24.05-py3-sdk\ndocker pull -q nvcr.io/nvidia/tritonserver:24.05-py3 && ' +
      'echo done\n'
    const { code, lines, diff } = await examined('pull.sh', script)
    const leave = 'leave it out: docs/containers.md makes the image of Nereid'
    expect([code, lines]).toEqual([
      1,
      [
        `2 change docker pull nvcr.io/nvidia/tritonserver:24.05-py3: ${leave}`,
        `5 change docker pull -q nvcr.io/nvidia/tritonserver:24.05-py3: ${leave}`,
      ],
    ])
    // The rest of the line stays.
    expect(diff).toContain('@@ -2,1 +1,0 @@\n-sudo docker pull nvcr.io/nvidia/tritonserver:24.05-py3\n')
    expect(diff).not.toContain('echo done')
    const named = await examined('pull.sh', script, {}, ['--image=registry.example.com/nereid:1'])
    expect(named.diff).toContain('+sudo docker pull registry.example.com/nereid:1\n')
    expect(named.diff).toContain('+docker pull -q registry.example.com/nereid:1 && echo done\n')
  })

  test('packages that a command installs before the server', async () => {
    const run = (command: string): string =>
      `docker run --rm -v $PWD/models:/models nvcr.io/nvidia/tritonserver:24.05-py3 bash -c "${command} && ` +
      'tritonserver --model-repository=/models"\n'
    const packages =
      'packages for Python models, at each start: it needs the network, and a writable file system; RUN pip install in an image of your own does it once'
    for (const command of [
      'pip install transformers',
      'pip3 install --no-cache-dir -r /models/requirements.txt',
      'python3 -m pip install torch',
      'uv pip install torch',
      'cd /models && pip install -q torch',
    ]) {
      const { lines } = await examined('up.sh', run(command), MODELS)
      expect(lines, command).toContain(`1 same ${command.split(' && ').at(-1)}: ${packages}`)
      expect(lines.join('\n'), command).toContain('take nereid-python:VERSION')
    }
    const apt = await examined('up.sh', run('apt-get install -y libgl1'), MODELS)
    expect(apt.lines).toContain(
      '1 change apt-get install -y libgl1: the image runs as a user without rights: install it in an image ' +
        'of your own, with USER root before and USER 1000 after it',
    )
    const shell = await examined(
      'Dockerfile',
      'FROM nvcr.io/nvidia/tritonserver:24.05-py3\nCMD pip install torch && tritonserver --model-repository=/models\n',
    )
    expect(shell.lines).toContain(`2 same pip install torch: ${packages}`)
    expect(shell.diff).toContain('+FROM nereid-python:VERSION\n')
    // Words that only look similar.
    const plain = await examined('up.sh', run('echo pip'), MODELS)
    expect(plain.lines.join('\n')).not.toContain('take nereid-python:VERSION')
  })

  test('removing a variable removes its option', async () => {
    const { diff } = await examined(
      'up.sh',
      'docker run --rm \\\n  -e LD_PRELOAD=/x.so \\\n  --env=LD_PRELOAD=/y.so -e A=1 \\\n ' +
        ' nvcr.io/nvidia/tritonserver:24.05-py3 tritonserver --model-repository=/models\n',
    )
    expect(diff).toContain('@@ -2,3 +2,2 @@\n-  -e LD_PRELOAD=/x.so \\\n-  --env=LD_PRELOAD=/y.so -e A=1 \\\n')
    expect(diff).toMatch(/^\+ +-e A=1 \\$/m)
    expect(diff).not.toMatch(/^\+.*-e \\$/m)
  })

  test('of those, the image has not all', async () => {
    const compose = `services:
  triton:
    image: nvcr.io/nvidia/tritonserver:24.05-py3
    command: numactl --interleave=all tritonserver --model-repository=/models
    volumes: [ ./models:/models ]
`
    const { lines, commands } = await examined('compose.yaml', compose, MODELS)
    expect(lines.join('\n')).toContain(
      'change numactl: is not in the image: leave it out; --cpuset-cpus and --cpuset-mems of docker run do the same',
    )
    expect(commands).toEqual(['nereid --model-repository=./models'])
  })

  test('a command in one word: of ssh, eval and their like', async () => {
    const remote = await examined(
      'deploy.sh',
      'ssh gpu-host "docker run -d -v /nowhere/models:/models nvcr.io/nvidia/tritonserver:23.12-py3 ' +
        'tritonserver --model-repository=/models"\n',
    )
    expect(remote.commands).toEqual(['nereid --model-repository=/nowhere/models'])
    expect(remote.diff).toContain('+ssh gpu-host "docker run -d -v /nowhere/models:/models nereid:VERSION tritonserver')
    expect(
      (await examined('eval.sh', 'ARGS="--http-port=9000 --model-repository=/nowhere"\neval "tritonserver $ARGS &"\n'))
        .commands,
    ).toEqual(['nereid --http-port=9000 --model-repository=/nowhere'])
    expect((await examined('deep.sh', `${'eval "'.repeat(200)}tritonserver\n`)).code).toBe(0)
  })

  test('arguments that come from outside are known when it runs', async () => {
    const { code, lines, commands } = await examined(
      'entrypoint.sh',
      '#!/bin/sh\nset -- --log-verbose=1 "$@"\nexec tritonserver --model-repository=/models "$@" $1\n',
    )
    expect(code).toBe(0)
    expect(lines.join('\n')).toContain('same $@: is known only at run time; check its value then')
    expect(commands).toEqual(['nereid --model-repository=/models $@ $1'])
  })
})

describe('templates', () => {
  test('a template of Helm', async () => {
    const template = `{{- if .Values.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "triton.fullname" . }}
  labels:
    {{- include "triton.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicaCount }}
  template:
    spec:
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .Chart.Name }}
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: ["tritonserver", "--model-repository={{ .Values.image.modelRepositoryPath }}",
                 "--model-control-mode=poll",
                 "--repository-poll-secs=5", "--strict-model-confg=false"]
          {{- if .Values.gpu }}
          resources:
            limits:
              nvidia.com/gpu: {{ .Values.image.numGpus }}
          {{- else }}
          resources: {}
          {{- end }}
          readinessProbe:
            httpGet: { path: /v2/health/ready, port: http }
{{- end }}
`
    const { code, lines, commands, diff, err } = await examined('deployment.yaml', template)
    expect([code, err]).toEqual([1, ''])
    const all = lines.join('\n')
    expect(all).toContain('1 same template: values of {{ … }} are known only after rendering')
    expect(all).toContain(
      '18 change image {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}: ' +
        'its name is known only at run time; take nereid-gpu:VERSION',
    )
    expect(all).toContain(
      '20 same --model-repository={{ .Values.image.modelRepositoryPath }}: its value is known only at run time',
    )
    expect(all).toContain('22 change --strict-model-confg=false')
    expect(all).toContain('26 differs resources: limits: nvidia.com/gpu: {{ .Values.image.numGpus }}')
    expect(commands).toEqual([
      'nereid --model-repository={{ .Values.image.modelRepositoryPath }} --model-control-mode=poll ' +
        '--repository-poll-secs=5 --strict-model-config=false',
    ])
    // The values name the image.
    expect(diff).toContain('+                 "--repository-poll-secs=5", "--strict-model-config=false"]')
    expect(diff).not.toContain('image:')
  })

  test('a tag or a directory of a template', async () => {
    const template = `apiVersion: v1
kind: Pod
metadata: { name: t }
spec:
  containers:
  - name: triton
    image: nvcr.io/nvidia/tritonserver:{{ triton_version }}-py3
    command: ["/bin/bash", "-c"]
    args:
    - >-
      tritonserver --model-repository=/models
      --log-verbose={{ log_level | default(0) }}
    volumeMounts: [ { name: models, mountPath: /models } ]
{% if pull_secret is defined %}
  imagePullSecrets: [ { name: {{ pull_secret }} } ]
{% endif %}
  volumes:
  - name: models
    hostPath: { path: "{{ data_dir }}/models" }
`
    const { code, lines, commands, diff } = await examined('pod.yaml', template)
    expect(code).toBe(1)
    const all = lines.join('\n')
    expect(all).toContain('7 change image nvcr.io/nvidia/tritonserver:{{ triton_version }}-py3: ')
    expect(all).toContain('same mount /models: its directory is known only at run time')
    expect(commands).toEqual(['nereid --model-repository=/models --log-verbose={{ log_level | default(0) }}'])
    expect(diff).toContain('+    image: nereid:VERSION\n')
  })

  test('a compose file of Jinja or Ansible', async () => {
    const compose = `services:
  triton:
    image: "{{ triton_image | default('nvcr.io/nvidia/tritonserver:24.05-py3') }}"
    command: tritonserver --model-repository=/models --http-port={{ http_port }}
    ports:
      - "{{ http_port }}:8000"
    volumes:
      - "{{ models_dir }}:/models:ro"
`
    const { code, lines, commands } = await examined('docker-compose.yml', compose)
    expect(code).toBe(1)
    expect(lines.join('\n')).toContain('same mount /models: its directory is known only at run time')
    expect(lines.join('\n')).toContain('port {{ http_port }}:8000: HTTP')
    expect(commands).toEqual(['nereid --model-repository=/models --http-port={{ http_port }}'])
  })

  test('values of a chart: their replacements', async () => {
    const { code, err } = await examined(
      'values.yaml',
      'replicaCount: 1\nimage:\n  repository: nvcr.io/nvidia/tritonserver\n  tag: 24.05-py3\n',
    )
    expect([code, err]).toEqual([
      2,
      expect.stringContaining('for values of a Helm chart, run doctor on the output of `helm template`'),
    ])
  })

  test('templates without an end, and a hundred thousand of them', async () => {
    for (const text of [
      'kind: Pod\nspec: {{ x\n',
      `kind: Pod\na: "${'{{ x }}'.repeat(100_000)}"\n`,
      `kind: Pod\n${'{{ if x }}\n'.repeat(50_000)}`,
      'kind: Pod\na: {% raw %}{{ x }}{% endraw %}\n',
    ]) {
      expect([0, 1, 2], text.slice(0, 30)).toContain((await examined('t.yaml', text)).code)
    }
  }, 20_000)
})

describe('a Dockerfile', () => {
  test('one that is not of Triton is left alone', async () => {
    const { code, lines, diff } = await examined(
      'Dockerfile',
      'FROM python:3.11-slim\nRUN apt-get update && apt-get install -y curl\nRUN pip install ' +
        'tritonclient[all]\nHEALTHCHECK CMD curl -f localhost/\nCMD ["python", "app.py"]\n',
    )
    expect([code, diff, lines]).toEqual([0, '', ['1 same image python:3.11-slim: is not Triton: not changed']])
  })

  test.each([
    ['line feeds', '\n'],
    ['carriage returns and line feeds', '\r\n'],
  ])('comments and blank lines between continued lines keep their place: %s', async (_, end) => {
    const from = 'FROM nvcr.io/nvidia/tritonserver:24.05-py3'
    const check = ['HEALTHCHECK --interval=5s \\', '  # ready?', '  CMD curl -f http://localhost:8000/v2/health/ready']
    const command = 'CMD ["tritonserver", "--model-repository=/models"]'
    const { diff } = await examined('Dockerfile', [from, ...check, command, ''].join(end))
    for (const line of check) expect(diff).toContain(`-${line}`)
    const preloads = ['ENV A=1 \\', '', '# library', '    LD_PRELOAD=/x.so']
    const { diff: other } = await examined('Dockerfile', [from, ...preloads, command, ''].join(end))
    expect(other).toContain('-    LD_PRELOAD=/x.so')
  })

  test('build stages do not run', async () => {
    const dockerfile = `FROM ubuntu:22.04 AS builder
RUN apt-get update && apt-get install -y build-essential
ENV LD_PRELOAD=/x.so
FROM nvcr.io/nvidia/tritonserver:24.05-py3
COPY --from=builder /out /opt/app
CMD echo starting tritonserver && tritonserver --model-repository=/models
`
    const { lines, commands, diff } = await examined('Dockerfile', dockerfile)
    expect(lines.some((line) => /apt-get|LD_PRELOAD/.test(line))).toBe(false)
    expect(commands).toEqual(['nereid --model-repository=/models'])
    expect(diff).toContain('@@ -4,1 +4,1 @@')
  })
})

const patch = spawnSync('patch', ['--version']).status === 0 ? '' : ': patch is not installed'

describe.skipIf(patch !== '')(`a Dockerfile without its LD_PRELOAD can still be built${patch}`, () => {
  const cases: [string, string, string][] = [
    ['alone', 'ENV LD_PRELOAD=/x.so\n', ''],
    ['alone and in quotes', 'ENV LD_PRELOAD="/x.so /y.so"\n', ''],
    ['alone and empty', 'ENV LD_PRELOAD=\n', ''],
    ['alone in its old form', 'ENV LD_PRELOAD /x.so\n', ''],
    ['alone in two lines', 'ENV \\\n  LD_PRELOAD=/x.so\n', ''],
    ['first', 'ENV LD_PRELOAD=/x.so A=1\n', 'ENV A=1\n'],
    ['last', 'ENV A=1 LD_PRELOAD=/x.so\n', 'ENV A=1\n'],
    ['first of several lines', 'ENV LD_PRELOAD=/x.so \\\n  A=1\n', 'ENV \\\n  A=1\n'],
    ['last of several lines', 'ENV A=1 \\\n  LD_PRELOAD="/x.so"\n', 'ENV A=1\n'],
    ['behind a comment', 'ENV A=1 \\\n  # for malloc\n  LD_PRELOAD=/x.so\n', 'ENV A=1\n  # for malloc\n'],
    ['between others', 'ENV A=1 \\\n  LD_PRELOAD=/x.so \\\n  B=2\n', 'ENV A=1 \\\n  B=2\n'],
  ]
  test.each(cases)('%s', async (_, text, left) => {
    const around = (env: string): string =>
      `FROM nvcr.io/nvidia/tritonserver:24.05-py3\n${env}CMD ["tritonserver", "--model-repository=/models"]\n`
    const { lines, diff } = await examined('Dockerfile', around(text))
    expect(lines.join('\n')).toContain('change LD_PRELOAD=')
    const directory = files({
      Dockerfile: around(text),
      'changes.patch': diff.replace(/^(---|\+\+\+) .*$/gm, '$1 Dockerfile'),
    })
    expect(spawnSync('patch', ['-p0', '-i', 'changes.patch'], { cwd: directory, encoding: 'utf8' }).status).toBe(0)
    expect(readFileSync(join(directory, 'Dockerfile'), 'utf8')).toBe(
      around(left).replace('nvcr.io/nvidia/tritonserver:24.05-py3', 'nereid:VERSION'),
    )
  })
})

describe('LD_PRELOAD is in the diff, however the file writes it', () => {
  const compose = (environment: string): string =>
    `services:\n  t:\n    image: nereid:1\n    command: tritonserver --model-repository=/models\n${environment}`
  const pod = (env: string): string =>
    'kind: Pod\nspec:\n  containers:\n    - image: nereid:1\n' +
    `      args: [tritonserver, --model-repository=/models]\n${env}`
  const cases: [string, string, string, string][] = [
    [
      'compose, a map',
      'compose.yaml',
      compose('    environment:\n      LD_PRELOAD: /x.so\n      A: b\n'),
      compose('    environment:\n      A: b\n'),
    ],
    ['compose, the only member', 'compose.yaml', compose('    environment:\n      LD_PRELOAD: "/x.so"\n'), compose('')],
    [
      'compose, a map on one line',
      'compose.yaml',
      compose('    environment: { LD_PRELOAD: /x.so, A: b }\n'),
      compose('    environment: { A: b }\n'),
    ],
    [
      'compose, the last of a line',
      'compose.yaml',
      compose('    environment: { A: b, LD_PRELOAD: /x.so }\n'),
      compose('    environment: { A: b }\n'),
    ],
    [
      'compose, a list',
      'compose.yaml',
      compose('    environment:\n      - LD_PRELOAD=/x.so\n      - A=b\n'),
      compose('    environment:\n      - A=b\n'),
    ],
    [
      'compose, a variable of its own',
      'compose.yaml',
      compose('    environment:\n      LD_PRELOAD: ${P:-/x.so}\n      A: b\n'),
      compose('    environment:\n      A: b\n'),
    ],
    [
      'Kubernetes',
      'pod.yaml',
      pod('      env:\n        - name: LD_PRELOAD\n          value: /x.so\n        - name: A\n'),
      pod('      env:\n        - name: A\n'),
    ],
    [
      'Kubernetes, the only item',
      'pod.yaml',
      pod('      env:\n        - { name: LD_PRELOAD, value: /x.so }\n'),
      pod(''),
    ],
    [
      'a script',
      'run.sh',
      '  LD_PRELOAD=/x.so tritonserver --model-repository=/models\n',
      '  tritonserver --model-repository=/models\n',
    ],
  ]
  test.each(cases)('%s', async (_, name, text, left) => {
    const { diff, lines } = await examined(name, text)
    expect(lines.join('\n')).toContain('change LD_PRELOAD=')
    const directory = files({ [name]: text, 'changes.patch': diff.replace(/^(---|\+\+\+) .*$/gm, `$1 ${name}`) })
    expect(spawnSync('patch', ['-p0', '-i', 'changes.patch'], { cwd: directory, encoding: 'utf8' }).status).toBe(0)
    expect(readFileSync(join(directory, name), 'utf8')).toBe(left)
  })

  test('what no edit reaches is named below the diff', async () => {
    const text = pod('      env: [{ name: LD_PRELOAD, value: /x.so }, { name: A, value: b }]\n')
    const directory = files({ 'pod.yaml': text.replace('nereid:1', 'nvcr.io/nvidia/tritonserver:24.05-py3') })
    const { out } = await runs(doctor, [join(directory, 'pod.yaml')], directory)
    expect(out).toContain('Changes to make by hand: ./pod.yaml:6')
  })
})

describe('a Dockerfile as people write it', () => {
  test('an image of Triton’s own files, a here-document, a file copied to the root', async () => {
    const dockerfile = `FROM nvcr.io/nvidia/tritonserver:21.08-py3-min AS full
FROM ubuntu:20.04
COPY --from=full /opt/tritonserver /opt/tritonserver
COPY run.sh /
COPY <<EOF /etc/motd
FROM nothing
RUN apt-get install x
EOF
CMD ["tritonserver", "--model-repository=/models"]
`
    const { lines, commands } = await examined('Dockerfile', dockerfile, { 'run.sh': '' })
    expect(commands).toEqual(['nereid --model-repository=/models'])
    expect(lines.filter((line) => !/ same /.test(line))).toEqual([
      '2 change image ubuntu:20.04: an image of your own: build it from Nereid’s; take nereid:VERSION, which ' +
        'docs/containers.md makes',
      '3 change COPY --from=full /opt/tritonserver /opt/tritonserver: is Triton itself: leave it out',
    ])
  })

  test('in an image that stays nothing has to be changed', async () => {
    const { lines } = await examined(
      'Dockerfile',
      'FROM nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3\nRUN apt-get update && apt-get install -y ' +
        'git-lfs\nCMD ["tritonserver", "--model-repository=/m"]\n',
    )
    expect(lines.some((line) => / change /.test(line))).toBe(false)
  })
})

test('a directory: clients, templates and servers beside one another', async () => {
  const directory = files(MODELS)
  mkdirSync(join(directory, 'deploy'))
  const put = (name: string, text: string): void => writeFileSync(join(directory, 'deploy', name), text)
  put('client.sh', 'docker run --rm nvcr.io/nvidia/tritonserver:24.05-py3-sdk perf_analyzer -m m\n')
  put(
    'server.sh',
    'docker run --rm -v $(dirname $0)/../models:/models nvcr.io/nvidia/tritonserver:24.05-py3 tritonserver ' +
      '--model-repository=/models\n',
  )
  put(
    'pod.yaml',
    'kind: Pod\napiVersion: v1\nspec: { containers: [ { name: t, image: "{{ .Values.triton }}", args: ' +
      '[tritonserver, --model-repository=/m] } ] }\n',
  )
  const { code, out } = await runs(doctor, [join(directory, 'deploy')], directory)
  expect(code).toBe(1)
  expect(out).toContain('nereid --model-repository=./models')
  expect(out).toContain('as it is          image nvcr.io/nvidia/tritonserver:24.05-py3-sdk')
})
