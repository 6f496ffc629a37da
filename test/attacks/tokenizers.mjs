/** Folders of text models whose tokenizers are too large or take too long, and texts that are too long for one. */
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { textFolder, writeTextModel } from '../models/text.mjs'
import { server } from './lib/servers.mjs'

const added = (count) =>
  Array.from({ length: count }, (_, i) => ({
    id: 10_000 + i,
    content: `<extra_${i}>`,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: false,
  }))
const split = (Regex) => ({ pre_tokenizer: { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false } })
const replace = (Regex) => ({ normalizer: { type: 'Replace', pattern: { Regex }, content: '' } })

/** Name → what tokenizer.json has instead, and what the load says. */
const ODD = {
  added: [{ added_tokens: added(100_000) }, /10000\d added tokens, the limit is 16384/],
  expression: [split('a'.repeat(5000)), /a regular expression has 5000 bytes, the limit is 4096/],
  nested: [split('('.repeat(3000)), /tokenizer\.json/],
  repeated: [split('((\\w{1000}){1000}){1000}'), /tokenizer\.json/],
  normalizer: [replace('(a+)+(?!b)'), /of a normalizer uses lookaround or backreferences/],
  template: [
    { post_processor: { type: 'TemplateProcessing', single: [], pair: [], special_tokens: {} } },
    /post-processor/,
  ],
  unigram: [{ model: { type: 'Unigram', unk_id: 7, vocab: [] } }, /tokenizer\.json/],
}

/** Writes a model whose tokenizer.json has `other` values. */
function write(root, name, other) {
  const folder = textFolder()
  const file = { ...JSON.parse(folder['tokenizer.json']), ...other }
  writeTextModel(root, name, { ...folder, 'tokenizer.json': JSON.stringify(file) })
}

const odd = server('odd tokenizers', {
  flags: ['--model-control-mode=explicit', '--load-model=simple', '--load-model=slow'],
  models: (root) => {
    for (const [name, [other]] of Object.entries(ODD)) write(root, name, other)
    write(root, 'slow', split('(?:a|aa)+(?=c)|b'))
    write(root, 'huge', {})
    truncateSync(join(root, 'huge', '1', 'tokenizer.json'), 100 << 20)
    write(root, 'brackets', {})
    writeFileSync(join(root, 'brackets', '1', 'config.json'), '['.repeat(4_000_000))
  },
})

export const rows = [
  {
    attack:
      'folders of text models with a tokenizer.json of 100 MB, 100,000 added tokens, regular expressions that are ' +
      'long, nested or repeated without end, and a config.json of 4 million brackets',
    limit:
      'Each load fails by itself and names the limit: `TOKENIZER_BYTES_MAX` and `CONFIG_BYTES_MAX` of `text`; ' +
      '`ADDED_TOKENS_MAX` and `REGEX_BYTES_MAX` of `text::tokenizer`; `LABELS_MAX` of `text::folder`. A panic of the ' +
      'library is an error of the file.',
    server: odd,
    async run(t) {
      const all = Object.entries(ODD).map(([name, [, text]]) => [name, text])
      let worst = 0
      all.push(['huge', /104857600 bytes, the limit for this file is/], ['brackets', /config\.json/])
      for (const [name, text] of all) {
        const from = performance.now()
        const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
        worst = Math.max(worst, performance.now() - from)
        const says = answer.text.slice(0, 300)
        t.check(answer.status !== 200 && text.test(answer.text), `${name}: ${answer.status} ${says}`)
      }
      t.check(worst < 20_000, `the slowest load took ${worst} ms`)
      return `${all.length} models, slowest answer ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'texts of 10 MB, and texts for which a regular expression of the tokenizer takes exponential time',
    limit:
      'A text has at most `TEXT_BYTES_MAX` bytes and `REGEX_TEXT_BYTES_MAX` if the tokenizer has regular ' +
      'expressions of its own; these go back `REGEX_STEPS_MAX` times for a match (`text::tokenizer`). Only the ' +
      'request fails.',
    server: odd,
    async run(t) {
      const ask = (text) => t.post('/v1/embeddings', JSON.stringify({ model: 'slow', input: text }))
      let worst = 0
      for (const [text, says] of [
        ['b'.repeat(10 << 20), /the limit is 1048576/],
        ['b'.repeat(65_537), /its regular expression takes 65536 bytes at most/],
        [`${'a'.repeat(5000)}b`, /backtracking/],
      ]) {
        const from = performance.now()
        const answer = await ask(text)
        worst = Math.max(worst, performance.now() - from)
        t.check(answer.status === 400 && says.test(answer.text), `${answer.status} ${answer.text.slice(0, 300)}`)
      }
      const answer = await ask('b b')
      t.check(answer.status === 200, `${answer.status} ${answer.text.slice(0, 300)}`)
      t.check(worst < 20_000, `the slowest answer took ${worst} ms`)
      return `slowest answer ${worst.toFixed(0)} ms`
    },
  },
]
