// `nereid doctor` over deployments from guides: its findings, its edits, and its exit codes.
import { readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { execFileSync, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { FLAGS, type Flag } from '../../src/cli/flags.js'
import { FACTS, type Fact } from '../../src/tools/doctor/facts.js'
import { tritonVersion } from '../../src/tools/doctor/image.js'
import { pythonRuntime } from '../../src/api/python.js'
import * as doctor from '../../src/tools/doctor/index.js'
import { FILE_BYTES_MAX } from '../../src/tools/doctor/inputs.js'
import { COMPAT, textOf } from '../docs/pages.js'
import { files, runs } from './harness.js'

const ONNX = `backend: "onnxruntime"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
`
const REPOSITORY = { 'models/m/config.pbtxt': ONNX, 'models/m/1/model.onnx': '' }

/** Runs doctor on one of these files. */
async function examined(
  content: Record<string, string>,
  path: string,
  args: string[] = [],
): Promise<{ code: number; out: string; err: string }> {
  const directory = files(content)
  return runs(doctor, [join(directory, path), '--image=nereid:1', ...args], directory)
}

test('every row that doctor cites exists in COMPAT.md or docs/compat', () => {
  const rows = COMPAT.flatMap((page) => textOf(page).split('\n'))
    .filter((line) => line.startsWith('| '))
    .map((line) => line.slice(2))
  const facts: Fact[] = Object.values(FACTS)
  const cited = facts.flatMap(({ row }) => (row === null ? [] : [row]))
  expect(cited.length).toBeGreaterThan(20)
  // Every fact is used.
  const directory = fileURLToPath(new URL('../../src/tools/doctor/', import.meta.url))
  const code = readdirSync(directory)
    .filter((name) => name !== 'facts.ts')
    .map((name) => readFileSync(join(directory, name), 'utf8'))
    .join('')
  expect(Object.keys(FACTS).filter((name) => !code.includes(`'${name}'`))).toEqual([])
  expect(cited.filter((row) => !rows.some((line) => line.startsWith(row)))).toEqual([])
})

test('an invalid model is reported with its real type', async () => {
  const pointer = 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n'
  const { code, out } = await examined(
    {
      'models/m/config.pbtxt': ONNX,
      'models/m/1/model.onnx': 'not a model',
      'models/p/config.pbtxt': ONNX,
      'models/p/1/model.onnx': pointer,
    },
    'models',
  )
  expect(code).toBe(1)
  expect(out).toMatch(/to change +model m: the file is not an ONNX model/)
  expect(out).toMatch(/to change +model p: the file is a pointer of Git LFS/)
  expect(out).not.toContain('as it is          model')
})

describe('a command line', () => {
  test('a deployment that runs unchanged', async () => {
    const directory = files(REPOSITORY)
    const { code, out } = await runs(
      doctor,
      ['--', 'tritonserver', `--model-repository=${directory}/models`, '--http-port', '9000'],
      directory,
    )
    expect(code).toBe(0)
    expect(out).toMatchInlineSnapshot(`
      "command line
             as it is          --model-repository=./models
             as it is          --http-port 9000

      ./models/m/config.pbtxt
             as it is          model m: onnxruntime, version 1

      Starts as:
        nereid --model-repository=./models --http-port 9000

      3 as it is, 0 differ, 0 to change, 0 not possible yet
      "
    `)
  })

  test('flags that need a word', async () => {
    const args = [
      '--model-store=/nowhere',
      '--http-thread-count=16',
      '--grpc-use-ssl=true',
      '--grpc-server-cert=/etc/tls/tls.crt',
      '--grpc-server-key=/etc/tls/tls.key',
      '--allow-vertex-ai=true',
      '--allow-sagemaker=false',
      '--backend-config=tensorflow,version=2',
      '--backend-config=python,shm-region-prefix-name=p',
      '--cache-config=redis,host=redis',
      '--strict-model-config=false',
      '--log-verbose=1',
      '--model-repo=s3://bucket/models',
      '--http-prt=8000',
      '--pinned-memory-pool-byte-size=0',
      '--grpc-infer-thread-count=1',
      '--trace-config=mode=opentelemetry',
      'left over',
    ]
    const { code, out } = await runs(doctor, ['--', '/opt/tritonserver/bin/tritonserver', ...args])
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "command line
             as it is          --model-store=/nowhere
             as it is          --http-thread-count=16: accepted without effect: see --reactor-threads
             as it is          --grpc-use-ssl=true
             as it is          --grpc-server-cert=/etc/tls/tls.crt
             as it is          --grpc-server-key=/etc/tls/tls.key
             not possible yet  --allow-vertex-ai=true: serve the v2 API on --http-port and map to it in front (COMPAT.md: SageMaker and Vertex AI front ends)
             as it is          --allow-sagemaker=false: accepted without effect; a warning at start names it
             as it is          --backend-config=tensorflow,version=2
             differs           --backend-config=python,shm-region-prefix-name=p: is read, and has no effect (COMPAT.md: Python models, \`shm-region-prefix-name\`)
             differs           --cache-config=redis,host=redis: works; starts without a Redis and connects when it can (COMPAT.md: Response cache in Redis, a Redis that cannot be reached)
             as it is          --strict-model-config=false: works. Use --disable-auto-complete-config.
             as it is          --log-verbose=1
             differs           --model-repo=s3://bucket/models: works; is read with the same variables; what is downloaded is kept, in --repository-cache-directory (COMPAT.md: Models of a repository in a cloud)
             to change         --http-prt=8000: unrecognized option '--http-prt'; did you mean '--http-port'?
             as it is          --pinned-memory-pool-byte-size=0
             to change         --grpc-infer-thread-count=1: invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128. Got 1
             differs           --trace-config=mode=opentelemetry: works; the collector must take OTLP over HTTP in protobuf; OTEL_EXPORTER_OTLP_PROTOCOL=http/json sends JSON (COMPAT.md: Traces of mode opentelemetry, how they are sent)
             to change         left over: is not an option of the server: leave it out
             to change         the options together: Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' in the configuration - e.g. tritonserver --cache-config redis,host=redis --cache-config redis,port=6379 --model-repository=/models ...

      Starts as:
        nereid --model-store=/nowhere --http-thread-count=16 --grpc-use-ssl=true --grpc-server-cert=/etc/tls/tls.crt --grpc-server-key=/etc/tls/tls.key --allow-vertex-ai=true --allow-sagemaker=false --backend-config=tensorflow,version=2 --backend-config=python,shm-region-prefix-name=p --cache-config=redis,host=redis --strict-model-config=false --log-verbose=1 --model-repo=s3://bucket/models --http-port=8000 --pinned-memory-pool-byte-size=0 --trace-config=mode=opentelemetry

      10 as it is, 4 differ, 4 to change, 1 not possible yet
      "
    `)
  })

  const clouds = ['s3://bucket/models', 'gs://bucket', 'as://account/container']
  test.each(clouds)('a repository in a cloud: %s', async (url) => {
    const { code, out } = await runs(doctor, ['--', 'tritonserver', `--model-repository=${url}`, '--http-port=9000'])
    expect([code, out]).toEqual([0, expect.stringContaining(`nereid --model-repository=${url} --http-port=9000\n`)])
    // Storage that no server reads is replaced by a placeholder.
    const other = await runs(doctor, ['--', 'tritonserver', '--model-repository=hdfs://models'])
    expect([other.code, other.out]).toEqual([1, expect.stringContaining('nereid --model-repository=DIRECTORY\n')])
  })

  test('rules between flags hold with a repository in a cloud, too', async () => {
    const { code, out } = await runs(doctor, ['--', 'tritonserver', '--model-repository=s3://bucket', '--load-model=a'])
    expect([code, out]).toEqual([1, expect.stringContaining("Error: Use of '--load-model' requires setting ")])
  })

  test('rules between flags are those of a start', async () => {
    const { out } = await runs(doctor, ['--', 'tritonserver', '--model-repository=/m', '--load-model=a'])
    expect(out).toContain(
      "to change         the options together: Error: Use of '--load-model' requires setting " +
        "'--model-control-mode=explicit' as well.",
    )
  })

  test('every flag of the table has a verdict', async () => {
    const table: readonly Flag[] = FLAGS
    const value = (flag: Flag): string => {
      if (flag.kind === 'switch') return ''
      if (flag.kind === 'boolean') return '=false'
      if (flag.kind === 'choice') return `=${flag.choices[0] ?? ''}`
      if (flag.kind !== 'string') return `=${Math.max(flag.kind === 'verbosity' ? 0 : (flag.min ?? 0), 2)}`
      return '=a,b=c'
    }
    for (const flag of table) {
      const { out } = await runs(doctor, ['--', 'tritonserver', `--${flag.name}${value(flag)}`])
      expect(out, flag.name).toMatch(
        new RegExp(`^ +(as it is|differs|to change|not possible yet) +--${flag.name}`, 'm'),
      )
    }
  })

  test('the same in sh -c, and docker run with a repository on this machine', async () => {
    const directory = files({
      'models/m/config.pbtxt': `${ONNX}instance_group [ { kind: KIND_GPU count: 2 } ]\n`,
      'models/m/1/model.onnx': '',
    })
    const run = [
      'docker',
      'run',
      '--gpus=all',
      '-it',
      '--rm',
      '--net=host',
      '-p',
      '8000:8000',
      '--shm-size=1g',
      '--ulimit',
      'memlock=-1',
      '-v',
      `${directory}/models:/models:ro`,
      '-e',
      'HF_TOKEN=hf_123',
    ]
    const server = [
      'nvcr.io/nvidia/tritonserver:24.01-py3',
      'bash',
      '-c',
      'pip install numpy && tritonserver --model-repository=/models',
    ]
    const { code, out } = await runs(doctor, ['--', ...run, ...server], directory)
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "command line
             differs           --gpus=all: stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
             as it is          --net=host
             as it is          -p 8000:8000: HTTP
             as it is          --shm-size=1g: no longer needed: tensors of Python models travel in memory without a name, not in /dev/shm; it may stay
             as it is          --ulimit memlock=-1: not needed any more; it may stay
             as it is          HF_TOKEN=…
             as it is          --model-repository=/models
             as it is          mount /models: ./models, examined below
             to change         image nvcr.io/nvidia/tritonserver:24.01-py3: Triton 2.42, all backends of Triton; take nereid-gpu:VERSION, which docs/containers.md makes
             differs           shared memory in 24.01-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
             as it is          pip install numpy: packages for Python models, at each start: it needs the network, and a writable file system; RUN pip install in an image of your own does it once

      ./models/m/config.pbtxt
             as it is          model m: onnxruntime, version 1
          5  differs           model m: instance_group: wants a GPU; runs there when ONNX Runtime’s CUDA provider is found (nereid gpu shows what is missing); without a GPU, --gpu-fallback=cpu serves it on the CPU (COMPAT.md: Instance groups that need a GPU, without one)

      Starts as:
        nereid --model-repository=./models

      9 as it is, 3 differ, 1 to change, 0 not possible yet
      "
    `)
  })

  test('an image of the month has the version of Triton that it had', () => {
    expect(
      ['21.02', '22.12-py3', '23.10-py3', '24.05-py3', '25.01-vllm-python-py3', '25.06-py3'].map(tritonVersion),
    ).toEqual(['2.7', '2.29', '2.39', '2.46', '2.54', '2.59'])
    expect(['25.07-py3', 'latest', '24.13-py3', ''].map(tritonVersion)).toEqual([null, null, null, null])
  })
})

describe('files', () => {
  test('a shell script', async () => {
    const script = `#!/usr/bin/env bash
set -euo pipefail
TAG=\${TAG:-23.12-py3}
REPO="$(pwd)/models"

docker run -d --name triton \\
  --gpus '"device=0"' \\
  --gpus all \\
  --shm-size=1g --ulimit memlock=-1 \\
  -p 8000:8000 -p 8001:8001 -p 8002:8002 \\
  -v "\${REPO}:/models" \\
  nvcr.io/nvidia/tritonserver:$TAG \\
  tritonserver --model-repository=/models \\
    --allow-gpu-metrics=false $EXTRA

until curl -sf localhost:8000/v2/health/ready; do sleep 1; done
perf_analyzer -m m -u localhost:8000
`
    const { code, out } = await examined({ ...REPOSITORY, 'run.sh': script }, 'run.sh')
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./run.sh
          7  differs           --gpus '"device=0"': stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
          8  differs           --gpus all: stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
          9  as it is          --shm-size=1g: no longer needed: tensors of Python models travel in memory without a name, not in /dev/shm; it may stay
          9  as it is          --ulimit memlock=-1: not needed any more; it may stay
         10  as it is          -p 8000:8000: HTTP
         10  as it is          -p 8001:8001: gRPC
         10  as it is          -p 8002:8002: metrics
         11  as it is          mount /models: ./models, examined below
         12  to change         image nvcr.io/nvidia/tritonserver:23.12-py3: Triton 2.41, all backends of Triton; take nereid:1, which docs/containers.md makes
         12  differs           shared memory in 23.12-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
         12  differs           errors over HTTP in 23.12-py3: some errors have another HTTP status than in this image (COMPAT.md: HTTP status by error class)
         13  as it is          --model-repository=/models
         14  as it is          --allow-gpu-metrics=false
         14  as it is          $EXTRA: is known only at run time; check its value then
         16  as it is          curl: a client: not changed
         17  as it is          perf_analyzer: a client: not changed

      ./models/m/config.pbtxt
             as it is          model m: onnxruntime, version 1

      Starts as:
        nereid --model-repository=./models --allow-gpu-metrics=false '$EXTRA'

      Changes:
      --- a/./run.sh
      +++ b/./run.sh
      @@ -12,1 +12,1 @@
      -  nvcr.io/nvidia/tritonserver:$TAG \\
      +  nereid:1 \\

      12 as it is, 4 differ, 1 to change, 0 not possible yet
      "
    `)
  })

  test('a Dockerfile', async () => {
    const dockerfile = `# The server
ARG VERSION=24.08
FROM nvcr.io/nvidia/tritonserver:\${VERSION}-py3 AS base
ENV LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4 \\
    PYTHONUNBUFFERED=1
RUN apt-get update && \\
    apt-get install -y libgl1
RUN pip install --no-cache-dir torch transformers

FROM base
COPY models /models
COPY build/libtriton_mine.so /opt/tritonserver/backends/mine/libtriton_mine.so
EXPOSE 8000 8001 8002
HEALTHCHECK CMD curl -f localhost:8000/v2/health/ready || exit 1
CMD ["tritonserver", "--model-repository=/models", \\
     "--strict-readiness=false"]
`
    const { code, out } = await examined({ ...REPOSITORY, Dockerfile: dockerfile }, 'Dockerfile')
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./Dockerfile
          3  to change         image nvcr.io/nvidia/tritonserver:24.08-py3: Triton 2.49, all backends of Triton; take nereid:1, which docs/containers.md makes
          3  differs           shared memory in 24.08-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
          4  to change         LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4: libraries for other backends or allocators have no use here: leave it out
          4  as it is          PYTHONUNBUFFERED=1
          6  to change         RUN apt-get update &&  apt-get install -y libgl1: write USER root before it and USER 1000 after it; packages come from Debian
          8  as it is          RUN pip install --no-cache-dir torch transformers: packages for Python models; the interpreter needs numpy
         11  as it is          COPY models /models
         11  as it is          mount /models: ./models, examined below
         12  differs           COPY build/libtriton_mine.so /opt/tritonserver/backends/mine/libtriton_mine.so: libraries of backends run in processes of their own; settings reach them (COMPAT.md: Processes of backend libraries)
         13  as it is          EXPOSE 8000 8001 8002
         14  to change         HEALTHCHECK CMD curl -f localhost:8000/v2/health/ready || exit 1: curl is not in the image: leave it out, the image checks /v2/health/ready itself
         15  as it is          --model-repository=/models
         16  as it is          --strict-readiness=false

      ./models/m/config.pbtxt
             as it is          model m: onnxruntime, version 1

      Starts as:
        nereid --model-repository=./models --strict-readiness=false

      Changes:
      --- a/./Dockerfile
      +++ b/./Dockerfile
      @@ -3,2 +3,2 @@
      -FROM nvcr.io/nvidia/tritonserver:\${VERSION}-py3 AS base
      -ENV LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4 \\
      +FROM nereid:1 AS base
      +ENV \\
      @@ -14,1 +13,0 @@
      -HEALTHCHECK CMD curl -f localhost:8000/v2/health/ready || exit 1

      Changes to make by hand: ./Dockerfile:6

      8 as it is, 2 differ, 4 to change, 0 not possible yet
      "
    `)
  })

  test('a compose file', async () => {
    const compose = `x-common: &common
  restart: unless-stopped
  environment:
    CUDA_VISIBLE_DEVICES: "0"
    AWS_SECRET_ACCESS_KEY: \${SECRET}
services:
  triton:
    <<: *common
    image: nvcr.io/nvidia/tritonserver:\${TRITON:-24.05}-py3
    command:
      - tritonserver
      - --model-repository=/models
      - --model-control-mode=poll
      - --http-thread-count=4
    shm_size: "2gb"
    ports: ["8000:8000", "8001:8001"]
    volumes:
      - ./models:/models:ro
    deploy:
      resources:
        reservations:
          devices:
            - capabilities: [gpu]
    healthcheck:
      test: ["CMD", "curl", "-f", "http://localhost:8000/v2/health/ready"]
      interval: 10s
  gateway:
    image: nginx
`
    const { code, out } = await examined(
      {
        'models/m/config.pbtxt': `${ONNX}instance_group [ { kind: KIND_GPU } ]`,
        'models/m/1/model.onnx': '',
        'compose.yaml': compose,
      },
      'compose.yaml',
    )
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./compose.yaml
          4  as it is          CUDA_VISIBLE_DEVICES=0: names the available GPUs, as for Triton
          5  as it is          AWS_SECRET_ACCESS_KEY=…: read as by Triton
          9  to change         image nvcr.io/nvidia/tritonserver:24.05-py3: Triton 2.46, all backends of Triton; take nereid:1, which docs/containers.md makes
          9  differs           shared memory in 24.05-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
         12  as it is          --model-repository=/models
         13  as it is          --model-control-mode=poll
         14  as it is          --http-thread-count=4: accepted without effect: see --reactor-threads
         15  as it is          shm_size: 2gb: no longer needed: tensors of Python models travel in memory without a name, not in /dev/shm; it may stay
         16  as it is          port 8000:8000: HTTP
         16  as it is          port 8001:8001: gRPC
         18  as it is          mount /models: ./models, examined below
         23  differs           deploy: devices: stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
         25  to change         healthcheck: CMD curl -f http://localhost:8000/v2/health/ready: curl is not in the image: leave it out, the image checks /v2/health/ready itself
         28  as it is          service gateway: is not Triton: not changed

      ./models/m/config.pbtxt
             as it is          model m: onnxruntime, version 1
          5  differs           model m: instance_group: wants a GPU; runs there when ONNX Runtime’s CUDA provider is found (nereid gpu shows what is missing); without a GPU, --gpu-fallback=cpu serves it on the CPU (COMPAT.md: Instance groups that need a GPU, without one)

      Starts as:
        nereid --model-repository=./models --model-control-mode=poll --http-thread-count=4

      Changes:
      --- a/./compose.yaml
      +++ b/./compose.yaml
      @@ -9,1 +9,1 @@
      -    image: nvcr.io/nvidia/tritonserver:\${TRITON:-24.05}-py3
      +    image: nereid:1
      @@ -24,3 +23,0 @@
      -    healthcheck:
      -      test: ["CMD", "curl", "-f", "http://localhost:8000/v2/health/ready"]
      -      interval: 10s

      11 as it is, 3 differ, 2 to change, 0 not possible yet
      "
    `)
  })

  test('a Kubernetes deployment', async () => {
    const manifest = `apiVersion: v1
kind: Service
metadata: { name: triton }
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: triton
spec:
  template:
    spec:
      terminationGracePeriodSeconds: 60
      nodeSelector:
        nvidia.com/gpu.present: "true"
      initContainers:
        - name: fetch
          image: amazon/aws-cli
      containers:
        - name: triton
          image: nvcr.io/nvidia/tritonserver:25.03-py3
          command: ["/bin/sh", "-c"]
          args:
            - |
              exec tritonserver --model-repository=/models \\
                --exit-timeout-secs=40
          ports:
            - containerPort: 8000
            - containerPort: 8002
          env:
            - name: LD_PRELOAD
              value: /plugins/libcustom.so
          livenessProbe:
            httpGet: { path: /v2/health/live, port: 8000 }
          readinessProbe:
            exec: { command: [curl, -f, "localhost:8000/v2/health/ready"] }
          lifecycle:
            preStop: { exec: { command: [sleep, "10"] } }
          resources:
            limits:
              nvidia.com/gpu: 1
          volumeMounts:
            - { name: models, mountPath: /models }
            - { name: dshm, mountPath: /dev/shm }
        - name: sidecar
          image: envoyproxy/envoy
      volumes:
        - name: models
          persistentVolumeClaim: { claimName: models }
        - name: dshm
          emptyDir: { medium: Memory, sizeLimit: 2Gi }
`
    const { code, out } = await examined({ 'triton.yaml': manifest }, 'triton.yaml')
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./triton.yaml
          1  as it is          Service triton: is not changed
         12  as it is          terminationGracePeriodSeconds: 60: has to be longer than --exit-timeout-secs (30)
         14  as it is          nodeSelector: nvidia.com/gpu.present: names the available GPUs, as for Triton
         16  as it is          init container fetch: is not changed
         20  to change         image nvcr.io/nvidia/tritonserver:25.03-py3: Triton 2.56, all backends of Triton; take nereid:1, which docs/containers.md makes
         20  differs           shared memory in 25.03-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
         24  as it is          --model-repository=/models
         25  as it is          --exit-timeout-secs=40
         27  as it is          port 8000: HTTP
         28  as it is          port 8002: metrics
         30  to change         LD_PRELOAD=/plugins/libcustom.so: libraries for other backends or allocators have no use here: leave it out
         33  as it is          livenessProbe: /v2/health/live
         35  to change         readinessProbe: curl -f localhost:8000/v2/health/ready: curl may not be in the image: write httpGet with /v2/health/ready
         37  differs           lifecycle: preStop: ports stay open for --exit-grace-secs (3 s), so a sleep before the end is not needed (COMPAT.md: SIGTERM)
         40  differs           resources: limits: nvidia.com/gpu: 1: stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
         42  as it is          mount /models: is a volume: run doctor on the models in it
         44  as it is          container sidecar: is not Triton: not changed
         49  as it is          volume dshm: emptyDir, medium Memory: no longer needed: tensors of Python models travel in memory without a name, not in /dev/shm; it may stay

      Starts as:
        nereid --model-repository=/models --exit-timeout-secs=40

      Changes:
      --- a/./triton.yaml
      +++ b/./triton.yaml
      @@ -20,1 +20,1 @@
      -          image: nvcr.io/nvidia/tritonserver:25.03-py3
      +          image: nereid:1
      @@ -29,3 +28,0 @@
      -          env:
      -            - name: LD_PRELOAD
      -              value: /plugins/libcustom.so

      Changes to make by hand: ./triton.yaml:35

      12 as it is, 3 differ, 3 to change, 0 not possible yet
      "
    `)
  })

  test('KServe: an InferenceService and a ServingRuntime', async () => {
    const manifest = `apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: { name: cifar }
spec:
  predictor:
    triton:
      storageUri: gs://bucket/models
      runtimeVersion: 23.05-py3
      args: ["--log-verbose=1"]
      resources: { limits: { cpu: "1", nvidia.com/gpu: "1" } }
---
apiVersion: serving.kserve.io/v1alpha1
kind: ClusterServingRuntime
metadata: { name: kserve-tritonserver }
spec:
  supportedModelFormats:
    - { name: onnx, version: "1" }
    - { name: pytorch, version: "1" }
  containers:
    - name: kserve-container
      image: nvcr.io/nvidia/tritonserver:23.05-py3
      args: [tritonserver, --model-store=/mnt/models, --grpc-port=9000, --http-port=8080, --allow-grpc=true]
`
    const { code, out } = await examined({ 'kserve.yaml': manifest }, 'kserve.yaml')
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./kserve.yaml
          7  as it is          storageUri: gs://bucket/models: KServe copies it to /mnt/models before the server starts
          7  to change         triton: KServe’s runtime for Triton starts its image: make a ServingRuntime with an image of Nereid, and name it as predictor.model.runtime
          8  to change         runtimeVersion: 23.05-py3: names a version of Triton: leave it out, the runtime has its image
          9  as it is          --log-verbose=1
         10  differs           resources: limits: nvidia.com/gpu: 1: stays; ONNX models use it when ONNX Runtime’s CUDA provider is found, as in the image nereid-gpu: nereid gpu shows what is missing (COMPAT.md: A GPU, and no provider of ONNX Runtime)
         17  as it is          supportedModelFormats: onnx
         18  as it is          supportedModelFormats: pytorch
         21  to change         image nvcr.io/nvidia/tritonserver:23.05-py3: Triton 2.34, all backends of Triton; take nereid:1, which docs/containers.md makes
         21  differs           shared memory in 23.05-py3: was on in this image: clients that register regions of shared memory need --allow-client-shm=true (COMPAT.md: \`--allow-client-shm\`)
         21  differs           errors over HTTP in 23.05-py3: some errors have another HTTP status than in this image (COMPAT.md: HTTP status by error class)
         22  as it is          --model-store=/mnt/models
         22  as it is          --grpc-port=9000
         22  as it is          --http-port=8080
         22  as it is          --allow-grpc=true
         22  as it is          repository /mnt/models: is in the image or a volume: run doctor on it there

      Starts as:
        nereid --model-store=/mnt/models --grpc-port=9000 --http-port=8080 --allow-grpc=true

      Changes:
      --- a/./kserve.yaml
      +++ b/./kserve.yaml
      @@ -21,1 +21,1 @@
      -      image: nvcr.io/nvidia/tritonserver:23.05-py3
      +      image: nereid:1

      Changes to make by hand: ./kserve.yaml:7, ./kserve.yaml:8

      9 as it is, 3 differ, 3 to change, 0 not possible yet
      "
    `)
  })

  test('a repository: the requirements of each model', async () => {
    const python = `import json
import torch
import triton_python_backend_utils as pb_utils
from transformers import pipeline
class TritonPythonModel:
    def initialize(self, args):
        self.model = torch.load("x").to("cuda")
`
    const { code, out } = await examined(
      {
        'r/batched/config.pbtxt':
          `${ONNX}dynamic_batching { max_queue_delay_microseconds: 500 }\nresponse_cache { enable: true ` +
          '}\noptimization { cuda { graphs: true } }',
        'r/batched/1/model.onnx': '',
        'r/gpu/config.pbtxt': `${ONNX}instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]`,
        'r/gpu/1/model.onnx': '',
        'r/plan/config.pbtxt': 'platform: "tensorrt_plan"',
        'r/plan/1/model.plan': '',
        'r/py/config.pbtxt':
          'backend: "python"\nparameters { key: "EXECUTION_ENV_PATH" value { string_value: ' +
          '"$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\nmodel_transaction_policy { decoupled: true }',
        'r/py/1/model.py': python,
        'r/py/triton_python_backend_stub': '',
        'r/seq/config.pbtxt':
          `${ONNX}sequence_batching { state [ { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ ` +
          '1 ] } ] }',
        'r/seq/1/model.onnx': '',
        'r/wrong/config.pbtxt': 'backend: "onnx_runtime"\n',
        'r/wrong/1/model.onnx': '',
        'r/library/config.pbtxt': 'backend: "my_backend"\n',
        'r/library/1/model.bin': '',
        'r/agent/config.pbtxt': `${ONNX}model_repository_agents { agents [ { name: "decrypt" } ] }`,
        'r/agent/1/model.onnx': '',
        'r/worse/config.pbtxt': 'backend: "onnxruntime"\nmax_batchsize: 8\n',
        'r/worse/1/model.onnx': '',
      },
      'r',
    )
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./r/agent/config.pbtxt
          5  to change         model agent: unable to find 'libtritonrepoagent_decrypt.so' for repo agent 'decrypt', searched: /opt/tritonserver/repoagents; put its library libtritonrepoagent_<name>.so below --repoagent-directory (COMPAT.md: Processes of caches and repository agents)

      ./r/batched/config.pbtxt
             differs           model batched: optimization.cuda; responses are the same without it; it may stay (COMPAT.md: Settings of a configuration that have no effect in this release)
             as it is          model batched: onnxruntime, version 1
          5  differs           model batched: max_queue_delay_microseconds: 500: an idle instance does not wait; --strict-batching-delay waits as Triton does (COMPAT.md: Dynamic batching delay)
          6  differs           model batched: response_cache: needs --cache-config, as in Triton (COMPAT.md: Response cache, which requests are equal)

      ./r/gpu/config.pbtxt
             as it is          model gpu: onnxruntime, version 1
          5  differs           model gpu: instance_group: wants a GPU; runs there when ONNX Runtime’s CUDA provider is found (nereid gpu shows what is missing); without a GPU, --gpu-fallback=cpu serves it on the CPU (COMPAT.md: Instance groups that need a GPU, without one)

      ./r/library/config.pbtxt
          1  to change         model library: no library of backend 'my_backend' was found; put its library libtriton_<name>.so, or its model.py, below --backend-directory (COMPAT.md: Processes of backend libraries)

      ./r/plan/config.pbtxt
             to change         model plan: model 'plan' must specify its inputs and outputs: they are not read from a TensorRT plan
             differs           model plan: is run on GPUs only, by ONNX Runtime’s TensorRT provider (nereid gpu shows what is missing); without a GPU, serve the ONNX file that it was made from (COMPAT.md: TensorRT plans)

      ./r/py/config.pbtxt
             as it is          model py: python, version 1
             as it is          model py: Python: its interpreter needs numpy, torch, transformers; NEREID_PYTHON names another interpreter
          2  differs           model py: EXECUTION_ENV_PATH: $$TRITON_MODEL_DIRECTORY/env.tar.gz: archives of conda-pack in gzip (.tar.gz) (COMPAT.md: Python models, archives of environments)
          3  as it is          model py: decoupled

      ./r/py/triton_python_backend_stub
             differs           model py: is not used: any CPython from 3.9 on with numpy runs models (COMPAT.md: Python models, a \`triton_python_backend_stub\`)

      ./r/py/1/model.py
          7  as it is          model py: self.model = torch.load("x").to("cuda"): the code may use a GPU by itself; its tensors are on one with FORCE_CPU_ONLY_INPUT_TENSORS "no", as in Triton

      ./r/seq/config.pbtxt
             as it is          model seq: onnxruntime, version 1
          5  differs           model seq: sequence_batching: works; a reload lets those in progress go on with the old load (COMPAT.md: Sequences in progress when their model is reloaded)
          5  differs           model seq: state: starts with zeros (COMPAT.md: Implicit state without an initial one)

      ./r/worse/config.pbtxt
          2  to change         model worse: Message type "inference.ModelConfig" has no field named "max_batchsize". Did you mean "max_batch_size"?

      ./r/wrong/config.pbtxt
          1  to change         model wrong: unable to find backend library for backend 'onnx_runtime', try specifying runtime on the model configuration. Did you mean backend: "onnxruntime"?

      Starts as:
        nereid --model-repository=./r

      7 as it is, 9 differ, 5 to change, 0 not possible yet
      "
    `)
  })

  test('a TensorRT plan runs on GPUs only; a backend of --backend-directory is served', async () => {
    const directory = files({
      'r/plan/config.pbtxt':
        ONNX.replace(/^backend.*\n/, 'platform: "tensorrt_plan"\n') + 'instance_group [ { kind: KIND_GPU } ]',
      'r/plan/1/model.plan': '',
      'r/llm/config.pbtxt': ONNX.replace('onnxruntime', 'vllm'),
      'r/llm/1/model.json': '{}',
      'b/vllm/model.py': '',
    })
    const { code, out } = await runs(
      doctor,
      ['--', 'tritonserver', `--model-repository=${directory}/r`, `--backend-directory=${directory}/b`],
      directory,
    )
    expect(code).toBe(0)
    expect(out).toContain(
      'as it is          model plan: tensorrt, version 1\n    5  differs           model plan: is run on ' +
        'GPUs only, by ONNX Runtime’s TensorRT provider (nereid gpu shows what is missing); without a GPU, serve ' +
        'the ONNX file that it was made from (COMPAT.md: TensorRT plans)\n',
    )
    expect(out).toContain('as it is          model llm: vllm, version 1\n')
    expect(out).not.toContain('gpu-fallback')
    const without = await runs(doctor, ['--', 'tritonserver', `--model-repository=${directory}/r`], directory)
    expect(without.out).toContain('as it is          model llm: vllm, version 1\n')
    expect(without.out).toContain('model llm: Python: its interpreter needs numpy, vllm; NEREID_PYTHON')
  })

  test('the packages of a Python model are reported by their own names', async () => {
    const code =
      'import cv2, json\nimport yaml\nfrom PIL import Image\nfrom sklearn.svm import SVC\nimport my_own\nimport torch\n'
    const { out } = await examined({ 'r/p/config.pbtxt': 'backend: "python"', 'r/p/1/model.py': code }, 'r')
    expect(out).toContain(
      'its interpreter needs numpy, opencv-python-headless, pillow, pyyaml, scikit-learn, torch; NEREID_PYTHON',
    )
    const list = readFileSync(join(pythonRuntime(), 'packages.txt'), 'utf8').trimEnd().split('\n').slice(1)
    expect(list.filter((line) => !/^[A-Za-z_]\w*(?: [a-z0-9-]+)?$/.test(line))).toEqual([])
    expect(new Set(list.map((line) => line.split(' ')[0])).size).toBe(list.length)
  })

  test('forms found in guides: pages, launchers, entry points, paths, lists', async () => {
    const page =
      'Run\n```bash\n$ docker run --gpus=1 --rm -v ${PWD}/models:/models ' +
      'nvcr.io/nvidia/tritonserver:25.01-py3 tritonserver --model-repository=/models\n```\n'
    const read = await examined({ ...REPOSITORY, 'README.md': page }, 'README.md')
    expect(read.out).toContain('nereid --model-repository=./models')
    expect(read.out).toContain(
      '+$ docker run --gpus=1 --rm -v ${PWD}/models:/models nereid:1 tritonserver --model-repository=/models',
    )

    const launcher = await examined(
      { 'start.sh': 'python3 /app/scripts/launch_triton_server.py --world_size 1\n' },
      'start.sh',
    )
    expect([launcher.code, launcher.out]).toEqual([
      0,
      expect.stringContaining('starts servers by a program of its own'),
    ])

    const shell = await examined(
      {
        'start.sh':
          'REPO=${1:-$PWD/models}\n/opt/tritonserver/bin/tritonserver --model-repository=$REPO --id=${NAME}\n',
        ...REPOSITORY,
      },
      'start.sh',
    )
    expect(shell.out).toContain("nereid --model-repository=./models '--id=${NAME}'")

    const dockerfile =
      'FROM nvcr.io/nvidia/tritonserver:23.04-py3\nENV PORT 8000\nENTRYPOINT ' +
      '["/opt/nvidia/nvidia_entrypoint.sh"]\nCMD /usr/bin/tritonserver --model-repository=/m --http-port ' +
      '${PORT}\n'
    const built = await examined({ Dockerfile: dockerfile }, 'Dockerfile')
    expect(built.out).toContain(
      '3  to change         /opt/nvidia/nvidia_entrypoint.sh: is a program of that image: leave it out',
    )
    expect(built.out).toContain('+CMD tritonserver --model-repository=/m --http-port ${PORT}')
    expect(built.out).toContain('nereid --model-repository=/m --http-port 8000')

    const list = `kind: List
apiVersion: v1
items:
- kind: CronJob
  apiVersion: batch/v1
  metadata: { name: nightly }
  spec: { jobTemplate: { spec: { template: { spec: { containers: [ { name: t, image: "registry/tritonserver:1", args: ["tritonserver", "--model-repository=$(R)"], env: [ { name: R, value: /m } ] } ] } } } } }
- kind: ConfigMap
  apiVersion: v1
  metadata: { name: c }
`
    const cron = await examined({ 'list.yaml': list }, 'list.yaml')
    expect(cron.out).toContain('7  as it is          --model-repository=/m')
    expect(cron.out).toContain('as it is          ConfigMap c: is not changed')
  })

  test('the image matches the models, and its contents are reported', async () => {
    const compose = (more: string): string =>
      `services: { t: { image: "tritonserver:1", volumes: ["./r:/models"], command: ${more} } }\n`
    const python = { 'r/p/config.pbtxt': 'backend: "python"', 'r/p/1/model.py': '' }
    const argv = '[bash, -c, "tritonserver --model-repository=/models --http-port=9000"]'
    const onnx = await runs(doctor, [
      join(files({ 'r/m/config.pbtxt': ONNX, 'r/m/1/model.onnx': '', 'compose.yml': compose(argv) }), 'compose.yml'),
    ])
    expect(onnx.out).toContain('take nereid:VERSION, which docs/containers.md makes')
    expect(onnx.out).toContain('to change         bash: is not in the image: write sh')
    expect(onnx.out).toContain('set the variable NEREID_HTTP_PORT to it too')
    const code = await runs(doctor, [join(files({ ...python, 'compose.yml': compose(argv) }), 'compose.yml')])
    expect(code.out).toContain('take nereid-python:VERSION, which docs/containers.md makes')
    expect(code.out).not.toContain('write sh')
    // Doctor's facts about images match their Containerfile.
    const containerfile = readFileSync(fileURLToPath(new URL('../../images/Containerfile', import.meta.url)), 'utf8')
    for (const fact of [
      'opt/tritonserver/bin/tritonserver',
      'NEREID_HTTP_PORT',
      'USER 1000',
      'busybox',
      'title="nereid-python"',
      'title="nereid-gpu"',
    ])
      expect(containerfile).toContain(fact)
    expect(containerfile).not.toMatch(/install[^&]*\bcurl\b|ENTRYPOINT/)
  })

  test('models for a GPU are served by the CPU only if the container has no GPU', async () => {
    const models = {
      'models/m/config.pbtxt': `${ONNX}instance_group [ { kind: KIND_GPU } ]`,
      'models/m/1/model.onnx': '',
    }
    const compose = (members: string): string =>
      'services: { t: { image: "tritonserver:1", command: "tritonserver --model-repository=/models", ' +
      `volumes: ["./models:/models"]${members} } }\n`
    const pod = (members: string): string =>
      `kind: Pod\nspec: { ${members} image: "tritonserver:1", args: [tritonserver, ` +
      '--model-repository=/models], volumeMounts: [ { name: m, mountPath: /models } ] } ], volumes: [ { name: ' +
      'm, hostPath: { path: "DIRECTORY/models" } } ] }\n'
    const container = 'containers: [ { name: t,'
    const check = async (name: string, text: string, falls: boolean): Promise<void> => {
      const directory = files(models)
      writeFileSync(join(directory, name), text.replaceAll('DIRECTORY', directory))
      const { out } = await runs(doctor, [join(directory, name)], directory)
      expect(out, text).toContain('model m: instance_group: wants a GPU; runs there when')
      expect(/nereid --model-repository=.* --gpu-fallback=cpu/.test(out), text).toBe(falls)
      expect(out.includes('the container has none'), text).toBe(falls)
      expect(out, text).toContain(falls ? 'take nereid:VERSION, which' : 'docs/containers.md makes')
    }
    await check('compose.yaml', compose(''), true)
    await check('compose.yaml', compose(', gpus: all'), false)
    await check('compose.yaml', compose(', runtime: nvidia'), false)
    await check(
      'compose.yaml',
      compose(', deploy: { resources: { reservations: { devices: [ { capabilities: [gpu] } ] } } }'),
      false,
    )
    await check('compose.yaml', compose(', environment: { NVIDIA_VISIBLE_DEVICES: all }'), false)
    await check('compose.yaml', compose(', environment: { NVIDIA_VISIBLE_DEVICES: none }'), true)
    await check('pod.yaml', pod(container), true)
    await check('pod.yaml', pod(`${container} resources: { limits: { nvidia.com/gpu: 1 } },`), false)
    await check('pod.yaml', pod(`runtimeClassName: nvidia, ${container}`), false)
    await check(
      'run.sh',
      'docker run -v ./models:/models tritonserver:1 tritonserver --model-repository=/models\n',
      true,
    )
    await check(
      'run.sh',
      'docker run --device nvidia.com/gpu=all -v ./models:/models tritonserver:1 tritonserver ' +
        '--model-repository=/models\n',
      false,
    )
    // The file of a command line does not tell where it runs.
    const start = await examined({ ...models, 'start.sh': 'tritonserver --model-repository=./models\n' }, 'start.sh')
    expect(start.out).not.toContain('--gpu-fallback=cpu\n')
  })

  test('the changes can be applied as they are printed', async () => {
    const compose =
      'services:\n  t:\n    image: nvcr.io/nvidia/tritonserver:24.05-py3\n    command: tritonserver ' +
      '--cache-config=redis,tls_enabled=true --model-repository=/models\n    volumes: [./models:/models]\n'
    const directory = files({
      'compose.yml': compose,
      'models/m/config.pbtxt': `${ONNX}instance_group [ { kind: KIND_GPU } ]`,
      'models/m/1/model.onnx': '',
    })
    const { out } = await runs(doctor, [join(directory, 'compose.yml'), '--image=nereid:1', '--format=json'])
    const [diff = ''] = (JSON.parse(out) as { diffs: string[] }).diffs
    execFileSync('git', ['apply', '--unidiff-zero', '-'], {
      cwd: directory,
      input: diff.replaceAll(directory, '').replaceAll('//', '/'),
    })
    expect(readFileSync(join(directory, 'compose.yml'), 'utf8')).toBe(
      'services:\n  t:\n    image: nereid:1\n    command: tritonserver --model-repository=/models ' +
        '--gpu-fallback=cpu\n    volumes: [./models:/models]\n',
    )
  })

  test('a directory with files that start a Triton, and one command in a file', async () => {
    const directory = files({
      ...REPOSITORY,
      'deploy/compose.yml':
        'services: { t: { image: "nvcr.io/nvidia/tritonserver:25.06-py3", command: "tritonserver ' +
        '--model-repository /models", volumes: ["../models:/models"] } }\n',
      'deploy/values.yaml': 'a: 1\n',
    })
    const { out } = await runs(doctor, [join(directory, 'deploy')], directory)
    expect(out).toContain('nereid --model-repository ./models')
    expect(out).not.toContain('values.yaml')
  })

  test('as JSON', async () => {
    const { code, out } = await examined(
      { 'run.sh': 'tritonserver --model-repository=/nowhere --alow-grpc=true\n' },
      'run.sh',
      ['--format=json'],
    )
    expect([code, JSON.parse(out)]).toMatchInlineSnapshot(`
      [
        1,
        {
          "commands": [
            {
              "command": [
                "nereid",
                "--model-repository=/nowhere",
                "--allow-grpc=true",
              ],
              "name": "tritonserver",
            },
          ],
          "counts": {
            "change": 1,
            "differs": 0,
            "impossible": 0,
            "same": 1,
          },
          "diffs": [
            "--- a/./run.sh
      +++ b/./run.sh
      @@ -1,1 +1,1 @@
      -tritonserver --model-repository=/nowhere --alow-grpc=true
      +tritonserver --model-repository=/nowhere --allow-grpc=true
      ",
          ],
          "dropped": 0,
          "findings": [
            {
              "line": 1,
              "path": "./run.sh",
              "row": null,
              "subject": "--model-repository=/nowhere",
              "text": "",
              "verdict": "same",
            },
            {
              "line": 1,
              "path": "./run.sh",
              "row": null,
              "subject": "--alow-grpc=true",
              "text": "unrecognized option '--alow-grpc'; did you mean '--allow-grpc'?",
              "verdict": "change",
            },
          ],
        },
      ]
    `)
  })
})

test('as a program: standard input, and a reader that leaves', () => {
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
  const script = 'tritonserver --model-repository=/nowhere\n'
  expect(execFileSync(process.execPath, [main, 'doctor', '-'], { input: script, encoding: 'utf8' })).toContain(
    'nereid --model-repository=/nowhere',
  )
  const many = Array.from({ length: 900 }, (_, i) => `--load-model=${'m'.repeat(150)}${i}`).join(' ')
  // More than a pipe holds.
  const input = `tritonserver ${many}\n`
  const { stdout, stderr } = spawnSync('sh', ['-c', '"$0" "$1" doctor - | head -1', process.execPath, main], {
    input,
    encoding: 'utf8',
  })
  expect([stdout, stderr]).toEqual(['-\n', ''])
})

describe('unreadable input exits with 2', () => {
  const cases: [string, string, RegExp][] = [
    ['a text of nothing', 'notes.txt', /is not a model repository, command line/],
    ['YAML that is none', 'a.yaml', /a\.yaml: line \d: /],
    ['a template of Helm', 'helm.yaml', /template of Helm/],
    ['YAML of something else', 'other.yaml', /neither a compose file nor a Kubernetes manifest/],
    ['a directory without anything', 'empty', /neither a model repository nor a directory/],
    ['nothing there', 'nowhere', /no such file or directory/],
  ]
  test.each(cases)('%s', async (_, path, text) => {
    const content = {
      'notes.txt': 'hello\n',
      'a.yaml': 'a: 1\nb: [\n',
      'helm.yaml': 'kind: Deployment\nspec: {{ .Values.x }}: [\n',
      'other.yaml': 'a: 1\n',
      'empty/': '',
    }
    const { code, err } = await examined(content, path)
    expect([code, err]).toEqual([2, expect.stringMatching(text)])
  })

  test('wrong arguments', async () => {
    expect((await runs(doctor, [])).code).toBe(2)
    expect((await runs(doctor, ['--http-port=1'])).err).toContain('after --')
    expect((await runs(doctor, ['--frmat=json', '.'])).err).toBe(
      "doctor has no option '--frmat'; did you mean '--format'?\n",
    )
    expect((await runs(doctor, ['--format=xml', '.'])).err).toBe("--format is text or json; got 'xml'\n")
    expect((await runs(doctor, ['--', 'ls'])).code).toBe(2)
  })
})

test("an exporter's directory is reported with the command that makes a repository", async () => {
  const directory = files({ 'config.json': '{}', 'model.onnx': '', 'tokenizer.json': '{}' })
  const { code, err } = await runs(doctor, [directory])
  expect([code, err]).toEqual([
    2,
    expect.stringMatching(/neither a model repository nor .*; of 'model\.onnx' in it .*init \S+ makes a repository$/m),
  ])
})

describe('hostile files', () => {
  test('large files, devices, FIFOs and loops of links are rejected without waiting', async () => {
    const directory = files({ 'big.sh': '' })
    truncateSync(join(directory, 'big.sh'), FILE_BYTES_MAX + 1)
    symlinkSync('/dev/zero', join(directory, 'zero.yaml'))
    symlinkSync('loop.yaml', join(directory, 'loop.yaml'))
    execFileSync('mkfifo', [join(directory, 'fifo.sh')])
    for (const name of ['big.sh', 'zero.yaml', 'loop.yaml', 'fifo.sh'])
      expect((await runs(doctor, [join(directory, name)])).code, name).toBe(2)
    expect((await runs(doctor, [directory])).code).toBe(2)
  })

  test('YAML of nested and circular aliases, of brackets, of a hundred thousand items', async () => {
    const bomb = [
      'a0: &a0 [x, x, x, x, x, x, x, x, x, x]',
      ...Array.from({ length: 30 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i},`.repeat(10)}]`),
    ].join('\n')
    const texts: [string, number][] = [
      [`${bomb}\nservices: { t: { image: tritonserver, command: *a30, environment: *a30, volumes: *a30 } }\n`, 1],
      ['services: &s { t: { <<: *s, image: tritonserver, command: [tritonserver] } }\n', 1],
      [`services: ${'['.repeat(100_000)}\n`, 2],
      [`services: ${'{a: '.repeat(50_000)}\n`, 2],
      [`services: { t: { image: tritonserver, command: [tritonserver, ${'"--id=x", '.repeat(50_000)}] } }\n`, 1],
    ]
    const from = performance.now()
    for (const [text, code] of texts) {
      const directory = files({ 'c.yaml': text })
      expect((await runs(doctor, [join(directory, 'c.yaml')])).code, text.slice(0, 40)).toBe(code)
    }
    expect(performance.now() - from).toBeLessThan(30_000)
  }, 60_000)

  test('a place in a cloud as the file to read', async () => {
    const { code, err } = await runs(doctor, ['s3://bucket/models'])
    expect([code, err]).toEqual([
      2,
      "s3://bucket/models is in a cloud, and 'nereid doctor' reads only local files: copy it to a directory, for " +
        "example with 'aws s3 sync', and name the directory\n",
    ])
  })

  test('a repository that is a loop of links, and a model.py without end', async () => {
    const directory = files({ 'r/m/1/': '', 'r/m/config.pbtxt': 'backend: "python"' })
    symlinkSync('..', join(directory, 'r/m/up'))
    symlinkSync('.', join(directory, 'r/self'))
    writeFileSync(join(directory, 'r/m/1/model.py'), '')
    truncateSync(join(directory, 'r/m/1/model.py'), 2 ** 33)
    const { out } = await runs(doctor, [join(directory, 'r')], directory)
    expect(out).toMatch(/model m: .*model\.py: 8589934592 bytes, at most 1048576 are read/)
  })

  test('texts of files cannot move the cursor, and secrets are not repeated', async () => {
    const { out } = await examined(
      { 'run.sh': 'DB_PASSWORD=hunter2 tritonserver "--id=\u001b[2J" --model-repository=/nowhere\n' },
      'run.sh',
    )
    expect(out).not.toContain('\u001b')
    expect(out).not.toContain('hunter2')
  })

  test('damaged files are read or refused, never a defect of our own', async () => {
    let state = 7
    const random = (): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32
    const seeds: [string, string][] = [
      [
        'c.yaml',
        'services:\n  t: &t\n    image: nvcr.io/nvidia/tritonserver:24.05-py3\n    command: ["tritonserver", ' +
          '"--model-repository=/m", \'--id=x\']\n    volumes: [./m:/m]\n    environment: { A: "${B:-c}" }\n',
      ],
      [
        'k.yaml',
        'kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - image: tritonserver\n    args: [tritonserver, ' +
          '"--model-store=$(X)"]\n    env: [{ name: X, value: /m }]\n',
      ],
      [
        'Dockerfile',
        'FROM nvcr.io/nvidia/tritonserver:24.05-py3\nENV A=b C="d e"\nCOPY m /m\nCMD ["tritonserver", ' +
          '"--model-repository=/m"]\n',
      ],
      [
        'run.sh',
        'X=${Y:-"z"}\ndocker run --gpus all -v $(pwd)/m:/m "tritonserver:24.05" tritonserver ' +
          '--model-repository=/m <<EOF\n$X\nEOF\n',
      ],
    ]
    for (const [name, seed] of seeds) {
      for (let i = 0; i < 150; i += 1) {
        const letters = [...seed]
        for (let n = 0; n < 3; n += 1)
          letters.splice(
            Math.floor(random() * letters.length),
            Math.floor(random() * 3),
            ...'{}[]"\'$&*#-:\\\n <|`'.charAt(Math.floor(random() * 19)),
          )
        expect([0, 1, 2]).toContain((await examined({ [name]: letters.join('') }, name)).code)
      }
    }
  })
})
