// `nereid doctor` over starts of Triton's OpenAI front end, `python3 main.py …`.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FRONT_END_OPTIONS } from '../../src/cli/front_end.js'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import * as doctor from '../../src/tools/doctor/index.js'
import { files, runs } from './harness.js'

/** The required and the other options of `main.py`, with a value for each. */
const OPTIONS: readonly (readonly string[])[] = [
  ['--model-repository', '/models'],
  ['--tokenizer', '/models/tokenizer'],
  ['--backend', 'vllm'],
  ['--lora-separator', '_lora_'],
  ['--tritonserver-log-verbose-level', '1'],
  ['--host', '127.0.0.1'],
  ['--tool-call-parser', 'llama3'],
  ['--max-tool-call-parse-bytes', '1024'],
  ['--chat-template', '/models/chat.jinja'],
  ['--default-max-tokens', '32'],
  ['--model-control-mode', 'explicit'],
  ['--load-model', 'llm'],
  ['--openai-port', '9005'],
  ['--uvicorn-log-level', 'warning'],
  ['--openai-restricted-api', 'inference,metrics', 'key', 'value'],
  ['--http-max-input-size', '1024'],
  ['--enable-kserve-frontends'],
  ['--kserve-http-port', '8080'],
  ['--kserve-grpc-port', '8081'],
]

/** Files of the name, as doctor would change them. */
async function patched(name: string, content: string): Promise<string> {
  const directory = files({ [name]: content })
  const { out } = await runs(doctor, [join(directory, name), '--image=nereid:1'], directory)
  const diff = /^--- [^]*?\n(?=\n|$(?![^]))/m.exec(out.slice(out.indexOf('\nChanges:\n')))?.[0] ?? ''
  writeFileSync(join(directory, 'changes.diff'), diff)
  execFileSync('patch', ['--quiet', '--unified', name, 'changes.diff'], { cwd: directory })
  return readFileSync(join(directory, name), 'utf8')
}

test('every option of main.py becomes one that the server takes', async () => {
  expect([...FRONT_END_OPTIONS.keys()].filter((name) => !OPTIONS.some(([one]) => one === `--${name}`))).toEqual([])
  const { code, out } = await runs(doctor, ['--', 'python3', 'main.py', ...OPTIONS.flat()])
  const [, line = ''] = /Starts as:\n {2}nereid (.*)/.exec(out) ?? []
  expect(code).toBe(1)
  expect(line.replaceAll(' --', '\n--')).toMatchInlineSnapshot(`
    "--model-repository /models
    --tokenizer /models/tokenizer
    --lora-separator _lora_
    --log-verbose=1
    --http-address=127.0.0.1
    --grpc-address=127.0.0.1
    --tool-call-parser llama3
    --max-tool-call-parse-bytes 1024
    --chat-template /models/chat.jinja
    --default-max-tokens 32
    --model-control-mode explicit
    --load-model llm
    --openai-port 9005
    --openai-restricted-api inference,metrics key value
    --http-max-input-size 1024
    --http-port=8080
    --grpc-port=8081
    --openai-errors=triton"
  `)
  expect(() => resolveSettings(parseArguments(line.split(' ')), {})).not.toThrow()
  expect(out).not.toContain('only port')
})

test('port and errors of the front end are kept, and what is different is said', async () => {
  const args = ['--', 'python3', '-u', 'openai_frontend/main.py', '--model-repository=m', '--tokenizer=org/model']
  const { code, out } = await runs(doctor, args)
  expect(code).toBe(1)
  expect(out).toContain(
    'to change         python3 -u openai_frontend/main.py: is the OpenAI front end of Triton: write ',
  )
  expect(out).toContain('differs           --tokenizer=org/model: works; nothing is downloaded: name a folder, or ')
  expect(out).toContain('to change         --openai-port=9000: add it')
  expect(out).toContain('differs           openai_frontend/main.py: opens one port only')
  expect(out).toContain('nereid --model-repository=m --tokenizer=org/model --openai-port=9000 --openai-errors=triton\n')
})

test('a compose file: lines, lists, and a shell that prepares the front end', async () => {
  const compose = `services:
  line:
    image: nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3
    command: python3 openai_frontend/main.py --model-repository /vllm --backend vllm --load-model=vllm
  list:
    image: my-front-end:1
    command: ["python3", "main.py", "--model-repository", "/m", "--backend", "vllm"]
  shell:
    image: nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3
    command:
      - bash
      - -c
      - |
        cd /opt/tritonserver/python/openai && pip install -r requirements.txt && \\
        python3 openai_frontend/main.py --model-repository /models \\
          --enable-kserve-frontends \\
          --kserve-grpc-port 8005
`
  expect(await patched('compose.yml', compose)).toMatchInlineSnapshot(`
    "services:
      line:
        image: nereid:1
        command: nereid --model-repository /vllm --load-model=vllm --openai-port=9000 --openai-errors=triton
      list:
        image: nereid:1
        command: ["nereid", "--model-repository", "/m", "--openai-port=9000", "--openai-errors=triton"]
      shell:
        image: nereid:1
        command:
          - bash
          - -c
          - |
            nereid --model-repository /models --openai-port=9000 --openai-errors=triton \\
              --grpc-port 8005
    "
  `)
})

test('a Kubernetes manifest, a script and a Dockerfile', async () => {
  const manifest = `apiVersion: apps/v1
kind: Deployment
metadata: { name: llm }
spec:
  template:
    spec:
      containers:
        - name: llm
          image: nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3
          command: ["python3", "openai_frontend/main.py"]
          args:
            - --model-repository
            - /models
            - --backend
            - vllm
            - --host
            - "::"
`
  expect(await patched('deployment.yaml', manifest)).toMatchInlineSnapshot(`
    "apiVersion: apps/v1
    kind: Deployment
    metadata: { name: llm }
    spec:
      template:
        spec:
          containers:
            - name: llm
              image: nereid:1
              command: ["nereid"]
              args:
                - --model-repository
                - /models
                - --openai-port=9000
                - --openai-errors=triton
                - --http-address
                - "::"
                - "--grpc-address=::"
    "
  `)
  const script = `#!/bin/sh
PORT=9005
cd /opt/tritonserver/python/openai
pip install -r requirements.txt
exec python3 openai_frontend/main.py --model-repository models --openai-port $PORT \\
  --uvicorn-log-level=warning
`
  expect(await patched('start.sh', script)).toMatchInlineSnapshot(`
    "#!/bin/sh
    PORT=9005
    exec nereid --model-repository models --openai-port $PORT --openai-errors=triton
    "
  `)
  const dockerfile = `FROM nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3
WORKDIR /opt/tritonserver/python/openai
RUN pip install -r requirements.txt
CMD ["python3", "openai_frontend/main.py", "--model-repository", "/models"]
`
  expect(await patched('Dockerfile', dockerfile)).toMatchInlineSnapshot(`
    "FROM nereid:1
    WORKDIR /opt/tritonserver/python/openai
    CMD ["nereid", "--model-repository", "/models", "--openai-port=9000", "--openai-errors=triton"]
    "
  `)
})

test('the words stay if the image does, and other Python programs are no front end', async () => {
  const directory = files({
    Dockerfile: `FROM nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3
WORKDIR /opt/tritonserver/python/openai
RUN pip install -r requirements.txt
CMD ["python3", "openai_frontend/main.py", "--model-repository", "/models"]
`,
  })
  const { code, out } = await runs(doctor, [join(directory, 'Dockerfile')], directory)
  expect(code).toBe(1)
  expect(out).not.toContain('Changes:')
  const other = await runs(doctor, ['--', 'python3', 'main.py', '--url=http://127.0.0.1:9000'])
  expect(other.code).toBe(2)
  expect(other.err).toContain('starts neither tritonserver nor Triton’s OpenAI front end (python3 main.py) nor docker')
})
