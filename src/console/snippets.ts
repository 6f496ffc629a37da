/**
 * The same call as a program to copy: curl, Python (tritonclient) and TypeScript (nereid/client). Pure. Names and
 * values come from models and users, so each is quoted as its language does. No program has a key: it names NEREID_KEY.
 */

import { printJson } from '../../client/src/json.js'
import type { InferRequest } from '../../client/src/wire.js'
import { generateMembers, listOf, modelPath } from './try/call.js'
import type { Filled } from './try/fields.js'

/** A call, and where it goes. */
export interface Sample {
  /** `http://localhost:8000`. */
  origin: string
  request: InferRequest
  /** The model sends any number of responses. */
  isStream: boolean
  hasKey: boolean
  /** 0: the server has no gRPC. Only streams in Python need it. */
  grpcPort?: number | undefined
}

export type Language = 'curl' | 'Python' | 'TypeScript'
export const LANGUAGES: readonly Language[] = ['curl', 'Python', 'TypeScript']

/** Characters of a program that is shown; values of a larger one belong in a file. */
const PROGRAM_CHARACTERS_MAX = 100_000
/** Bytes of an input whose values are written out. */
const WRITTEN_BYTES_MAX = 1 << 16
/** The port of gRPC unless the server has another one. */
const GRPC_PORT = 8001

/** @throws {Error} for a program that is too long to read, or that the server cannot serve */
export function snippetOf(language: Language, sample: Sample): string {
  const isLong = (sample.request.inputs as readonly Filled[]).some(
    ({ fill, file, raw }) => (sample.isStream || (fill === null && file === null)) && raw.length > WRITTEN_BYTES_MAX,
  )
  const text = isLong ? '' : WRITERS[language](sample)
  if (text === '' || text.length > PROGRAM_CHARACTERS_MAX)
    throw new Error('This call has too many values to write them here. Choose a file instead.')
  return text
}

const WRITERS: Readonly<Record<Language, (sample: Sample) => string>> = { curl, Python: python, TypeScript: typescript }

/** One word of a shell. */
export const shell = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`
/** A string of Python or TypeScript: both read the escapes of JSON. */
const quoted = (text: string): string => JSON.stringify(text)
const countOf = ({ shape }: Filled): number => shape.reduce<number>((all, dim) => all * Number(dim), 1)

/** A request with JSON; what is not written out comes from programs of the shell, through a pipe. */
function curl({ origin, request, isStream, hasKey }: Sample): string {
  const inputs = request.inputs as readonly Filled[]
  const path = `${modelPath(request.model, request.version)}/${isStream ? 'generate_stream' : 'infer'}`
  const lines = [`curl ${isStream ? '-sN' : '-s'} ${shell(origin + path)}`]
  if (hasKey) lines.push('-H "Authorization: Bearer $NEREID_KEY"')
  if (isStream) {
    const members = generateMembers(request).map(([name, value]) => `${quoted(name)}:${printJson(value)}`)
    return `${[...lines, `-d ${shell(`{${members.join(',')}}`)}`].join(' \\\n  ')}\n`
  }
  const form = formOf(request)
  if (form !== null) return `${[...lines, ...form].join(' \\\n  ')}\n`
  const text = jsonOf(request, inputs)
  const files = inputs.filter(isBinary).map(bytesOf)
  if (inputs.some(isHalf)) lines.push('-o response.bin')
  if (files.length === 0 && text.length === 1) return `${[...lines, `-d ${shell(text.join(''))}`].join(' \\\n  ')}\n`
  if (files.length === 0) return `${piped(text)} |\n${[...lines, '--data-binary @-'].join(' \\\n  ')}\n`
  lines.push(`-H "Inference-Header-Content-Length: $(printf %s "$json" | wc -c | tr -d ' ')"`, '--data-binary @-')
  return `json=$(${piped(text)})\n{ printf %s "$json"; ${files.join('; ')}; } |\n${lines.join(' \\\n  ')}\n`
}

/** A name that needs no quotes in a shell, a form or a script. */
const isPlain = (text: string): boolean => /^[A-Za-z_][\w.-]*$/.test(text)

/** The input of a request that is one file and nothing else, which clients take by its path; null for others. */
function onlyFile({ inputs }: InferRequest): { name: string; file: string } | null {
  const [{ name, datatype, file } = { name: '', datatype: '', file: null }, ...others] = inputs as readonly Filled[]
  if (others.length > 0 || datatype !== 'BYTES' || file === null || !isPlain(name)) return null
  return countOf(inputs[0] as Filled) === 1 ? { name, file } : null
}

/** Arguments for a form (docs/files.md); null for a request that needs JSON. */
function formOf(request: InferRequest): string[] | null {
  const input = onlyFile(request)
  if (input === null) return null
  const { name, file } = input
  const { id, parameters } = request
  // A field named as the input, or `id`, is no parameter.
  if (parameters.some(([key]) => !isPlain(key) || key === name || key === 'id')) return null
  const quotedFile = `"${file.replaceAll(/["\\]/g, String.raw`\$&`)}"`
  const fields = [...(id === '' ? [] : [['id', id]]), ...parameters, ...sequenceOf(request), ...limitsOf(request)]
  return [
    `-F ${isPlain(file) ? `${name}=@${file}` : shell(`${name}=@${quotedFile}`)}`,
    ...fields.map(([key, value]) => {
      const text = String(value)
      // Characters with a meaning in `-F` are sent as they are by the longer option.
      return /^[\w.+-]+$/.test(text) ? `-F ${key}=${text}` : `--form-string ${shell(`${key}=${text}`)}`
    }),
  ]
}

/** These datatypes have no form in JSON. */
const isHalf = ({ datatype }: Filled): boolean => datatype === 'FP16' || datatype === 'BF16'
const isBinary = (input: Filled): boolean => input.file !== null || isHalf(input)

type Piece = string | { command: string }

const piped = (pieces: readonly Piece[]): string =>
  `{ ${pieces.map((piece) => (typeof piece === 'string' ? `printf %s ${shell(piece)}` : piece.command)).join('; ')}; }`

/** The bytes of an input; those of a file are after their length for BYTES. */
function bytesOf({ datatype, raw, file, fill }: Filled): string {
  if (file === null) return fill === 'zeros' ? `head -c ${raw.length} /dev/zero` : `printf ${escaped(raw)}`
  const cat = `cat < ${shell(file)}`
  return datatype === 'BYTES' ? `printf ${escaped(raw.subarray(0, 4))}; ${cat}` : cat
}

const escaped = (bytes: Uint8Array): string =>
  `'${Array.from(bytes, (byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')}'`

function jsonOf(request: InferRequest, inputs: readonly Filled[]): Piece[] {
  const pieces: Piece[] = []
  let text = request.id === '' ? '{' : `{"id":${quoted(request.id)},`
  text += '"inputs":['
  inputs.forEach((input, i) => {
    const { name, datatype, shape, fill, raw } = input
    text += `${i === 0 ? '' : ','}{"name":${quoted(name)},"shape":[${shape.join(',')}],"datatype":"${datatype}",`
    if (isBinary(input)) text += `"parameters":{"binary_data_size":${raw.length}}}`
    else if (fill === null) text += `"data":${printJson(listOf(input))}}`
    else {
      pieces.push(`${text}"data":[`, { command: filling(fill, datatype, countOf(input)) })
      text = ']}'
    }
  })
  const answer = inputs.some(isHalf) ? [['binary_data_output', true] as const] : []
  const parameters = [...request.parameters, ...sequenceOf(request), ...limitsOf(request), ...answer].map(
    ([name, value]) => `${quoted(name)}:${printJson(value)}`,
  )
  return [...pieces, `${text}]${parameters.length === 0 ? '' : `,"parameters":{${parameters.join(',')}}`}}`]
}

const sequenceOf = ({ sequence }: InferRequest): [string, unknown][] =>
  sequence === null
    ? []
    : [
        ['sequence_id', sequence.id],
        ['sequence_start', sequence.start === true],
        ['sequence_end', sequence.end === true],
      ]

const limitsOf = ({ priority, timeoutUs }: InferRequest): [string, unknown][] =>
  Object.entries({ priority, timeout: timeoutUs }).filter(([, value]) => value !== null)

/** A command that prints values with commas. */
function filling(fill: NonNullable<Filled['fill']>, datatype: string, count: number): string {
  const [zero, one] = datatype === 'BOOL' ? ['false', 'true'] : ['0', '1']
  if (fill !== 'random') return `yes ${fill === 'zeros' ? zero : one} | head -n ${count} | paste -sd, -`
  const value =
    datatype === 'BOOL' ? 'rand() < 0.5 ? "true" : "false"' : /INT/.test(datatype) ? 'int(10*rand())' : 'rand()'
  return `awk 'BEGIN { srand(); for (i = 0; i < ${count}; i++) printf "%s%s", i ? "," : "", ${value} }'`
}

const NUMPY: Readonly<Record<string, string>> = {
  BOOL: 'bool_',
  UINT8: 'uint8',
  UINT16: 'uint16',
  UINT32: 'uint32',
  UINT64: 'uint64',
  INT8: 'int8',
  INT16: 'int16',
  INT32: 'int32',
  INT64: 'int64',
  FP16: 'float16',
  FP32: 'float32',
  FP64: 'float64',
  BYTES: 'object_',
}

/** numpy has no BF16; tritonclient takes that of ml_dtypes. */
const dtypeOf = (datatype: string): string => (datatype === 'BF16' ? 'ml_dtypes.bfloat16' : `np.${NUMPY[datatype]}`)

const pythonValue = (value: unknown): string =>
  typeof value === 'boolean'
    ? value
      ? 'True'
      : 'False'
    : typeof value === 'string'
      ? quoted(value)
      : typeof value === 'number' && !Number.isFinite(value)
        ? `float(${quoted(String(value))})`
        : printJson(value)

function pythonArray(input: Filled): string {
  const { datatype, shape, fill, file } = input
  const dtype = dtypeOf(datatype)
  const dims = `[${shape.join(', ')}]`
  const path = quoted(file ?? '')
  if (file !== null && datatype === 'BYTES') return `np.array([open(${path}, "rb").read()], ${dtype}).reshape(${dims})`
  if (file !== null) return `np.fromfile(${path}, ${dtype}).reshape(${dims})`
  if (fill === 'random') {
    const limit = datatype === 'BOOL' ? 2 : /INT/.test(datatype) ? 10 : null
    const call = limit === null ? `random(${dims})` : `integers(${limit}, size=${dims})`
    return `np.random.default_rng().${call}.astype(${dtype})`
  }
  if (fill !== null) return `np.${fill}(${dims}, ${dtype})`
  return `np.array([${listOf(input).map(pythonValue).join(', ')}], ${dtype}).reshape(${dims})`
}

function python({ origin, request, isStream, hasKey, grpcPort = GRPC_PORT }: Sample): string {
  if (isStream && grpcPort === 0)
    throw new Error('Streams in Python need gRPC, and this server runs without it (--allow-grpc=false).')
  const { protocol, host, hostname } = new URL(origin)
  const { model, version, id, sequence } = request
  const inputs = (request.inputs as readonly Filled[]).map(
    (input) => `    tensor(${quoted(input.name)}, "${input.datatype}", ${pythonArray(input)}),`,
  )
  const options = [
    ...(version === '' ? [] : [`model_version=${quoted(version)}`]),
    ...(id === '' ? [] : [`request_id=${quoted(id)}`]),
    ...(sequence === null ? [] : sequenceOf(request).map(([name, value]) => `${name}=${pythonValue(value)}`)),
    ...limitsOf(request).map(([name, value]) => `${name}=${pythonValue(value)}`),
  ]
  if (request.parameters.length > 0) {
    const parameters = request.parameters.map(([name, value]) => `${quoted(name)}: ${pythonValue(value)}`)
    options.push(`parameters={${parameters.join(', ')}}`)
  }
  const headers = hasKey ? ['headers={"authorization": "Bearer " + os.environ["NEREID_KEY"]}'] : []
  const isTls = protocol === 'https:' ? ', ssl=True' : ''
  const begin = [
    ...(hasKey ? ['import os'] : []),
    ...(isStream ? ['import queue'] : []),
    ...(hasKey || isStream ? [''] : []),
    ...(request.inputs.some(({ datatype }) => datatype === 'BF16') ? ['import ml_dtypes'] : []),
    'import numpy as np',
    `import tritonclient.${isStream ? 'grpc' : 'http'} as triton`,
    '',
    '',
    'def tensor(name, datatype, array):',
    '    made = triton.InferInput(name, list(array.shape), datatype)',
    '    made.set_data_from_numpy(array)',
    '    return made',
    '',
    '',
    'inputs = [',
    ...inputs,
    ']',
  ]
  if (!isStream) {
    const call = [quoted(model), 'inputs', ...options, ...headers].join(', ')
    return [
      ...begin,
      `client = triton.InferenceServerClient("${host}"${isTls})`,
      `result = client.infer(${call})`,
      'for output in result.get_response()["outputs"]:',
      '    print(output["name"], result.as_numpy(output["name"]))',
      '',
    ].join('\n')
  }
  const call = [quoted(model), 'inputs', ...options, 'enable_empty_final_response=True'].join(', ')
  return [
    ...begin,
    'responses = queue.Queue()',
    `client = triton.InferenceServerClient("${hostname}:${grpcPort}"${isTls})  # the port of gRPC`,
    `client.start_stream(${['lambda result, error: responses.put(error or result)', ...headers].join(', ')})`,
    `client.async_stream_infer(${call})`,
    'while True:',
    '    result = responses.get()',
    '    if isinstance(result, Exception):',
    '        raise result',
    '    response = result.get_response()',
    '    for output in response.outputs:',
    '        print(output.name, result.as_numpy(output.name))',
    '    if response.parameters["triton_final_response"].bool_param:',
    '        break',
    'client.stop_stream()',
    '',
  ].join('\n')
}

const scriptValue = (value: unknown): string => (typeof value === 'bigint' ? `${value}n` : printJson(value))

const sequenceText = ({ id, start, end }: NonNullable<InferRequest['sequence']>) =>
  `{ id: ${scriptValue(id)}, start: ${start === true}, end: ${end === true} }`

/** A key of an object literal, of which one would set the prototype. */
const member = (name: string): string =>
  name === '__proto__' ? '["__proto__"]' : /^[A-Za-z_$][\w$]*$/.test(name) ? name : quoted(name)

function scriptData(input: Filled): string {
  const { datatype, fill, file } = input
  const count = countOf(input)
  if (file !== null) return datatype === 'BYTES' ? `[readFileSync(${quoted(file)})]` : `readFileSync(${quoted(file)})`
  if (fill === null) return `[${listOf(input).map(scriptValue).join(', ')}]`
  if (fill !== 'random')
    return `Array(${count}).fill(${datatype === 'BOOL' ? String(fill === 'ones') : fill === 'ones' ? '1' : '0'})`
  const value =
    datatype === 'BOOL'
      ? 'Math.random() < 0.5'
      : /INT/.test(datatype)
        ? 'Math.floor(10 * Math.random())'
        : 'Math.random()'
  return `Array.from({ length: ${count} }, () => ${value})`
}

const connection = (origin: string, hasKey: boolean): string =>
  `const client = connect(${quoted(origin)}${hasKey ? ", { key: process.env['NEREID_KEY'] ?? '' }" : ''})`

function typescript({ origin, request, isStream, hasKey }: Sample): string {
  const { model, version, id, sequence, priority, timeoutUs, parameters } = request
  const inputs = request.inputs as readonly Filled[]
  const input = onlyFile(request)
  const isFile = !isStream && input === null && inputs.some(({ file }) => file !== null)
  const head = [
    ...(isFile ? ["import { readFileSync } from 'node:fs'"] : []),
    "import { connect } from 'nereid/client'",
    '',
    connection(origin, hasKey),
  ]
  if (isStream) {
    const members = generateMembers(request).map(([name, value]) => {
      const shown = Array.isArray(value) ? `[${value.map(scriptValue).join(', ')}]` : scriptValue(value)
      return `  ${member(name)}: ${shown},`
    })
    const options = version === '' ? '' : `, { version: ${quoted(version)} }`
    return [
      ...head,
      'const body = {',
      ...members,
      '}',
      `for await (const event of client.generateStream(${quoted(model)}, body${options})) console.log(event)`,
      'client.close()',
      '',
    ].join('\n')
  }
  const tensors = inputs.map((input) => {
    const { name, datatype, shape } = input
    const head = `name: ${quoted(name)}, datatype: '${datatype}', shape: [${shape.join(', ')}]`
    return `  { ${head}, data: ${scriptData(input)} },`
  })
  const values = parameters.map(([name, value]) => `${member(name)}: ${scriptValue(value)}`)
  const options = [
    ...(version === '' ? [] : [`version: ${quoted(version)}`]),
    ...(id === '' ? [] : [`id: ${quoted(id)}`]),
    ...(priority === null ? [] : [`priority: ${scriptValue(priority)}`]),
    ...(timeoutUs === null ? [] : [`timeoutUs: ${scriptValue(timeoutUs)}`]),
    ...(sequence === null ? [] : [`sequence: ${sequenceText(sequence)}`]),
    ...(values.length === 0 ? [] : [`parameters: { ${values.join(', ')} }`]),
  ]
  const end = options.length === 0 ? ')' : `, { ${options.join(', ')} })`
  const begin = `const result = await client.infer(${quoted(model)}, `
  const call =
    input === null
      ? [`${begin}[`, ...tensors, `]${end}`]
      : [`${begin}{ ${member(input.name)}: { path: ${quoted(input.file)} } }${end}`]
  return [
    ...head,
    ...call,
    'for (const output of result.outputs)',
    "  console.log(output.name, output.shape, output.datatype === 'BYTES' ? output.strings() : output.data)",
    'client.close()',
    '',
  ].join('\n')
}

export type Role = 'embed' | 'rerank' | 'classify'

/** A call of a text model. */
export interface TextSample {
  origin: string
  role: Role
  model: string
  text: string
  /** Samples to compare with, or documents. */
  lines: readonly string[]
  hasKey: boolean
}

/** @throws {Error} for a program that is too long to read */
export function textSnippetOf(language: Language, sample: TextSample): string {
  const { origin, role, model, text, lines, hasKey } = sample
  const [path, body] =
    role === 'embed'
      ? ['/v1/embeddings', { model, input: [text, ...lines] }]
      : role === 'rerank'
        ? ['/v1/rerank', { model, query: text, documents: lines }]
        : ['/v1/classify', { model, input: text }]
  const json = JSON.stringify(body)
  if (json.length > PROGRAM_CHARACTERS_MAX) throw new Error('These texts are too long to write them here.')
  if (language === 'curl') {
    const key = hasKey ? ['-H "Authorization: Bearer $NEREID_KEY"'] : []
    return `${[`curl -s ${shell(origin + path)}`, ...key, `-d ${shell(json)}`].join(' \\\n  ')}\n`
  }
  if (language === 'Python') {
    const headers = hasKey ? ', "authorization": "Bearer " + os.environ["NEREID_KEY"]' : ''
    return [
      'import json',
      ...(hasKey ? ['import os'] : []),
      'import urllib.request',
      '',
      `body = ${json}`,
      `headers = {"content-type": "application/json"${headers}}`,
      `request = urllib.request.Request(${quoted(origin + path)}, json.dumps(body).encode(), headers)`,
      'with urllib.request.urlopen(request) as response:',
      '    print(json.load(response))',
      '',
    ].join('\n')
  }
  if (role === 'classify') {
    const headers = hasKey ? ", headers: { authorization: `Bearer ${process.env['NEREID_KEY']}` }" : ''
    return [
      `const body = JSON.stringify(${json})`,
      `const response = await fetch(${quoted(origin + path)}, { method: 'POST'${headers}, body })`,
      'console.log(JSON.stringify(await response.json()))',
      '',
    ].join('\n')
  }
  const texts = (list: readonly string[]): string => `[${list.map(quoted).join(', ')}]`
  const call = role === 'embed' ? `embed(${texts([text, ...lines])}` : `rerank(${quoted(text)}, ${texts(lines)}`
  return [
    "import { connect } from 'nereid/client'",
    '',
    connection(origin, hasKey),
    `console.log(await client.${call}, { model: ${quoted(model)} }))`,
    'client.close()',
    '',
  ].join('\n')
}
