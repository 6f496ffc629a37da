/**
 * Folders of tiny text models as hubs have them: a transformer of one layer with weights that are noise, and a
 * WordPiece tokenizer that has every printable character of ASCII. `textFolder` returns their files by path.
 */
import { TYPE, initializer, model, node, noise, raw, value } from '../../scripts/models/onnx.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'

const SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
const WORDS = 'the a cat dog sat ran on mat in house is good bad film what who where paris france capital of'.split(' ')
const CHARACTERS = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i)).filter((c) => !/[A-Z]/.test(c))
const CONTINUED = CHARACTERS.filter((c) => /[a-z0-9]/.test(c)).map((c) => `##${c}`)
const VOCABULARY = [...new Set([...SPECIAL, ...WORDS, ...CHARACTERS, ...CONTINUED])]

/** Values of an embedding. */
export const WIDTH = 32
/** Maximum of tokens. */
export const LENGTH = 64

const id = (token) => VOCABULARY.indexOf(token)

function tokenizer() {
  const special = (token) => ({ SpecialToken: { id: token, type_id: 0 } })
  const second = { SpecialToken: { id: '[SEP]', type_id: 1 } }
  const text = (which, type) => ({ Sequence: { id: which, type_id: type } })
  return {
    version: '1.0',
    // A server that believed these would pad each text to 48 tokens.
    truncation: { direction: 'Right', max_length: 48, strategy: 'LongestFirst', stride: 0 },
    padding: {
      strategy: { Fixed: 48 },
      direction: 'Right',
      pad_to_multiple_of: null,
      pad_id: 0,
      pad_type_id: 0,
      pad_token: '[PAD]',
    },
    added_tokens: SPECIAL.map((content) => ({
      id: id(content),
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [special('[CLS]'), text('A', 0), special('[SEP]')],
      pair: [special('[CLS]'), text('A', 0), special('[SEP]'), text('B', 1), second],
      special_tokens: Object.fromEntries(
        ['[CLS]', '[SEP]'].map((token) => [token, { id: token, ids: [id(token)], tokens: [token] }]),
      ),
    },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(VOCABULARY.map((token, i) => [token, i])),
    },
  }
}

/** `labels` is the number of classes of `logits`; 0 returns the states of the tokens. */
function network(labels) {
  const next = noise(labels + 1)
  const weights = (name, ...dims) =>
    initializer(name, TYPE.FP32, dims, raw(Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, next)))
  const numbers = (name, ...of) => initializer(name, TYPE.INT64, [of.length], raw(BigInt64Array.from(of, BigInt)))
  const number = (name, of) => initializer(name, TYPE.FP32, [], raw(Float32Array.of(of)))
  const tokens = ['batch', 'tokens']
  const states = labels === 0 ? 'last_hidden_state' : 'states'
  const head = [node('Gather', ['states', 'first'], ['cls'], { axis: 1 }), node('MatMul', ['cls', 'head'], ['logits'])]
  const headWeights = () => [
    weights('head', WIDTH, labels),
    initializer('first', TYPE.INT64, [], raw(BigInt64Array.of(0n))),
  ]
  return model({
    nodes: [
      node('Gather', ['words', 'input_ids'], ['word']),
      node('Gather', ['types', 'token_type_ids'], ['type']),
      node('Shape', ['input_ids'], ['length'], { start: 1 }),
      node('Slice', ['positions', 'zero', 'length'], ['position']),
      node('Add', ['word', 'type'], ['typed']),
      node('Add', ['typed', 'position'], ['x']),
      node('Cast', ['attention_mask'], ['mask'], { to: TYPE.FP32 }),
      node('Sub', ['mask', 'unit'], ['hidden']),
      node('Mul', ['hidden', 'high'], ['hide']),
      node('Unsqueeze', ['hide', 'middle'], ['hide_row']),
      node('MatMul', ['x', 'queries'], ['query']),
      node('Transpose', ['x'], ['key'], { perm: [0, 2, 1] }),
      node('MatMul', ['query', 'key'], ['products']),
      node('Mul', ['products', 'scale'], ['scores']),
      node('Add', ['scores', 'hide_row'], ['masked']),
      node('Softmax', ['masked'], ['attention'], { axis: -1 }),
      node('MatMul', ['attention', 'x'], ['seen']),
      node('Add', ['seen', 'x'], ['sum']),
      node('LayerNormalization', ['sum', 'gain', 'bias'], [states], { axis: -1 }),
      ...(labels === 0 ? [] : head),
    ],
    inputs: ['input_ids', 'attention_mask', 'token_type_ids'].map((name) => value(name, TYPE.INT64, tokens)),
    outputs: [
      labels === 0 ? value(states, TYPE.FP32, [...tokens, WIDTH]) : value('logits', TYPE.FP32, ['batch', labels]),
    ],
    initializers: [
      weights('words', VOCABULARY.length, WIDTH),
      weights('types', 2, WIDTH),
      weights('positions', LENGTH, WIDTH),
      weights('queries', WIDTH, WIDTH),
      weights('gain', WIDTH),
      weights('bias', WIDTH),
      number('unit', 1),
      number('high', 1e4),
      number('scale', 1 / Math.sqrt(WIDTH)),
      numbers('zero', 0),
      numbers('middle', 1),
      ...(labels === 0 ? [] : headWeights()),
    ],
  })
}

/**
 * Files of a folder by path: of a sentence-transformers model without `labels`, else of a sequence classifier. One
 * label makes a cross-encoder.
 *
 * @param {{ labels?: string[], pooling?: string, normalizes?: boolean }} options
 * @returns {Record<string, string | Buffer>}
 */
export function textFolder({ labels = [], pooling = 'mean_tokens', normalizes = true } = {}) {
  const json = (object) => `${JSON.stringify(object, null, 2)}\n`
  const modes = ['cls_token', 'mean_tokens', 'max_tokens', 'lasttoken']
  const module = (idx, path, type) => ({ idx, name: `${idx}`, path, type: `sentence_transformers.models.${type}` })
  const names = Object.fromEntries(labels.map((label, i) => [`${i}`, label]))
  const embeds = {
    'modules.json': json([
      module(0, '', 'Transformer'),
      module(1, '1_Pooling', 'Pooling'),
      ...(normalizes ? [module(2, '2_Normalize', 'Normalize')] : []),
    ]),
    '1_Pooling/config.json': json({
      word_embedding_dimension: WIDTH,
      ...Object.fromEntries(modes.map((mode) => [`pooling_mode_${mode}`, mode === pooling])),
    }),
    'sentence_bert_config.json': json({ max_seq_length: LENGTH, do_lower_case: false }),
    'config_sentence_transformers.json': json({
      prompts: { query: 'what is the ', document: '' },
      default_prompt_name: null,
    }),
  }
  return {
    'model.onnx': network(labels.length),
    'tokenizer.json': json(tokenizer()),
    'tokenizer_config.json': json({ tokenizer_class: 'BertTokenizer', model_max_length: LENGTH, do_lower_case: true }),
    'config.json': json({
      model_type: 'bert',
      architectures: [labels.length === 0 ? 'BertModel' : 'BertForSequenceClassification'],
      hidden_size: WIDTH,
      max_position_embeddings: LENGTH,
      vocab_size: VOCABULARY.length,
      pad_token_id: 0,
      ...(labels.length === 0 ? {} : { id2label: names, num_labels: labels.length }),
    }),
    ...(labels.length === 0 ? embeds : {}),
  }
}

/** Writes a model of the backend `text`; without `config`, the server completes it. */
export function writeTextModel(root, name, folder, config = 'backend: "text"\n') {
  const files = Object.entries(folder).map(([path, contents]) => [`1/${path}`, contents])
  writeModel(root, name, { config, versions: { 1: null }, files: Object.fromEntries(files) })
}

/** One model of each role, and the form that LiteLLM sends to. */
export function writeText(root) {
  const embeds = textFolder()
  writeTextModel(root, 'embed', embeds)
  writeTextModel(root, 'rerank', textFolder({ labels: ['relevant'] }))
  writeTextModel(root, 'classify', textFolder({ labels: ['bad', 'good', 'unknown'] }))
  const flat = [[['input_text', 'TYPE_STRING', [-1]]], [['vectors', 'TYPE_FP32', [-1, WIDTH]]]]
  writeTextModel(root, 'flat', embeds, config('text', 0, ...flat))
}
