/**
 * Completes the folders `examples/text*`: vocabularies, networks, and files shared by two of them. `node
 * scripts/models/text.mjs [DIR]`.
 *
 * The networks are not trained but written: a word stands for a topic, and words follow each other as in a rhyme.
 */
import { cpSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { TYPE, initializer, model, node, noise, raw, value } from './onnx.mjs'
import { writeModel } from './repository.mjs'

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))

/** Labels of the classifier, in the order of its logits, each with its words. */
const TOPICS = {
  food:
    'soup bread cheese butter apple rice salt sugar pepper coffee tea cake kitchen cook bake eat taste dinner ' +
    'lunch delicious fresh sweet recipe oven spoon',
  music:
    'song sing guitar piano violin drum band concert melody rhythm chord note tune orchestra album record ' +
    'listen loud sound play voice dance jazz rock opera',
  sport:
    'ball goal team win lose match player race run swim jump score coach league cup final stadium tennis ' +
    'football train fast fan referee medal champion',
  weather:
    'rain snow wind storm sun cloud fog hail thunder lightning cold warm hot dry wet forecast degree ' +
    'temperature season winter summer spring autumn sky umbrella',
}
const OTHER =
  'the a an and or but if of to in on at by for with from is are was were be been it this that i you he she ' +
  'we they my your his her our their not no yes very too so as up out all some any what when where who how ' +
  'more most much many one two three there here today tomorrow yesterday will can do did has have had'
const ENDINGS = ['##s', '##es', '##ed', '##ing', '##er', '##y', '##ly']
const SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]']
/** Any word of these letters has pieces. */
const LETTERS = [...'abcdefghijklmnopqrstuvwxyz0123456789']

const words = (text) => text.split(' ')
const lines = (list) => list.map((one) => `${one}\n`).join('')

export const LABELS = Object.keys(TOPICS)
export const PIECES = [
  ...new Set([
    ...SPECIAL,
    ...Object.values(TOPICS).flatMap(words),
    ...words(OTHER),
    ...ENDINGS,
    ...LETTERS,
    ...LETTERS.map((l) => `##${l}`),
    ...'.,!?',
  ]),
]

const WIDTH = 16
/** The mean over a text has about a tenth of a topic's word; this factor makes a clear label of it. */
const SHARPNESS = 12

/** A direction for each topic. Its words point there; a text's topic is the mean of its words. */
function classifier() {
  const random = noise(9)
  const directions = LABELS.map(() => {
    const one = Array.from({ length: WIDTH }, random)
    const length = Math.hypot(...one)
    return one.map((x) => x / length)
  })
  const table = new Float32Array(PIECES.length * WIDTH)
  LABELS.forEach((label, topic) => {
    for (const word of words(TOPICS[label])) table.set(directions[topic], PIECES.indexOf(word) * WIDTH)
  })
  const weights = Float32Array.from(
    { length: WIDTH * LABELS.length },
    (_, i) => SHARPNESS * directions[i % LABELS.length][Math.floor(i / LABELS.length)],
  )
  return model({
    nodes: [
      node('Gather', ['embeddings', 'input_ids'], ['words']),
      node('Cast', ['attention_mask'], ['mask'], { to: TYPE.FP32 }),
      node('Unsqueeze', ['mask', 'last'], ['mask_column']),
      node('Mul', ['words', 'mask_column'], ['masked']),
      node('ReduceSum', ['masked', 'tokens'], ['sum'], { keepdims: 0 }),
      node('ReduceSum', ['mask', 'tokens'], ['count'], { keepdims: 1 }),
      node('Div', ['sum', 'count'], ['mean']),
      node('MatMul', ['mean', 'weights'], ['logits']),
    ],
    inputs: ['input_ids', 'attention_mask'].map((name) => value(name, TYPE.INT64, ['batch', 'tokens'])),
    outputs: [value('logits', TYPE.FP32, ['batch', LABELS.length])],
    initializers: [
      initializer('embeddings', TYPE.FP32, [PIECES.length, WIDTH], raw(table)),
      initializer('weights', TYPE.FP32, [WIDTH, LABELS.length], raw(weights)),
      initializer('last', TYPE.INT64, [1], raw(BigInt64Array.of(-1n))),
      initializer('tokens', TYPE.INT64, [1], raw(BigInt64Array.of(1n))),
    ],
  })
}

/** No word is repeated, so each has one successor. */
const RHYME = 'a small server woke before dawn and answered every question kindly until nobody asked anything'
const START = 'once'
export const WORDS = ['[UNK]', '[END]', START, ...words(RHYME)]

/** The next word: a row of logits for each word. An unknown word starts the rhyme. */
function nextToken() {
  const table = new Float32Array(WORDS.length ** 2)
  const first = WORDS.indexOf(START) + 1
  WORDS.forEach((word, i) => {
    const next = word === '[UNK]' || word === '[END]' ? first : i + 1
    table[i * WORDS.length + (next < WORDS.length ? next : WORDS.indexOf('[END]'))] = 1
  })
  return model({
    nodes: [node('Gather', ['table', 'token'], ['logits'])],
    inputs: [value('token', TYPE.INT64, [1])],
    outputs: [value('logits', TYPE.FP32, [1, WORDS.length])],
    initializers: [initializer('table', TYPE.FP32, [WORDS.length, WORDS.length], raw(table))],
  })
}

/** The folders that are completed below a directory; they are copied from examples if it is another. */
const FOLDERS = ['text', 'text-ts', 'text_bls', 'text_stream']

/** Completes the folders below a directory. */
export function writeText(root = EXAMPLES) {
  if (root !== EXAMPLES) {
    for (const folder of FOLDERS) cpSync(join(EXAMPLES, folder), join(root, folder), { recursive: true })
  }
  const network = { versions: { 1: classifier() } }
  const vocabulary = { '1/vocab.txt': lines(PIECES) }
  const wordpiece = readFileSync(join(EXAMPLES, 'text/tokenizer/1/wordpiece.py'))
  const [python, typescript, bls, stream] = FOLDERS.map((folder) => join(root, folder))
  for (const ensemble of [python, typescript]) {
    writeModel(ensemble, 'tokenizer', { files: vocabulary })
    writeModel(ensemble, 'classifier', network)
    // A version directory is required, and git keeps no empty one.
    mkdirSync(join(ensemble, 'text', '1'), { recursive: true })
  }
  writeModel(bls, 'text_bls', { files: { ...vocabulary, '1/wordpiece.py': wordpiece } })
  writeModel(bls, 'classifier', network)
  writeModel(stream, 'text_stream', { files: { '1/vocab.txt': lines(WORDS) } })
  writeModel(stream, 'next_token', { versions: { 1: nextToken() } })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeText(process.argv[2])
