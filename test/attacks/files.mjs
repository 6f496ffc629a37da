/** Files as requests: forms and bodies that are no JSON. */

const PATH = '/v2/models/identity_bytes/infer'
const FORM = { 'content-type': 'multipart/form-data; boundary=b' }
const MIB = 1 << 20

const field = (head, contents = '') => `--b\r\nContent-Disposition: form-data; ${head}\r\n\r\n${contents}\r\n`

export const rows = [
  {
    attack:
      'forms of 20,000 fields, of a head without an end, of a boundary of 4 KiB, without a boundary, and with a ' +
      'million beginnings of one',
    limit:
      'Fields are counted before they are stored (`protocol::http::Limits`), a head has `HEAD_BYTES_MAX` and a ' +
      'boundary `BOUNDARY_BYTES_MAX`. The search for a boundary is linear (`protocol::files`).',
    async run(t) {
      const file = field('name="INPUT0"; filename="a"', 'x')
      const body = 'x'.repeat(4 * MIB)
      const attacks = [
        [file.repeat(20_000), FORM, /names 16385 fields, more than the maximum of 16384/],
        [`--b\r\nA: ${body}`, FORM, /does not end within 4096 bytes/],
        [file, { 'content-type': `multipart/form-data; boundary=${'b'.repeat(4096)}` }, /needs a boundary/],
        [file, { 'content-type': 'multipart/form-data' }, /needs a boundary/],
        [`${file}${'\r\n--'.repeat(MIB)}`, FORM, /has no boundary after it/],
        [`--b\r\n\r\n${body}`, FORM, /has no boundary after it/],
        [body, FORM, /its boundary is nowhere/],
      ]
      const { worstMs } = await t.health(async () => {
        for (const [text, headers, expected] of attacks) {
          const answer = await t.post(PATH, text, headers)
          t.check(answer.status === 400 && expected.test(answer.text), `${answer.status} ${answer.text.slice(0, 200)}`)
        }
      })
      return `health within ${worstMs.toFixed(0)} ms`
    },
  },
  {
    attack: 'eight files of 60 MiB at once, as bodies, in forms and as base64',
    limit:
      'A file is a body: `--http-max-input-size` bounds it, and its memory is charged (`memory::Budget`). What copies ' +
      'it leaves the reactor.',
    async run(t) {
      const file = Buffer.alloc(60 * MIB, 'ab')
      const form = Buffer.concat([
        Buffer.from('--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n'),
        file,
        Buffer.from('\r\n--b--\r\n'),
      ])
      const json = JSON.stringify({
        inputs: [
          {
            name: 'INPUT0',
            datatype: 'BYTES',
            shape: [1],
            parameters: { content_encoding: 'base64' },
            data: [file.subarray(0, 40 * MIB).toString('base64')],
          },
        ],
        outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
      })
      const accept = { accept: 'application/octet-stream' }
      const bodies = [
        [file, { 'content-type': 'image/jpeg', ...accept }],
        [form, { ...FORM, ...accept }],
        [json, {}],
        [file, { 'inference-header-content-length': '0' }],
      ]
      const before = t.rssMiB()
      const { result, worstMs } = await t.health(() =>
        Promise.all([...bodies, ...bodies].map(([body, headers]) => t.post(PATH, body, headers))),
      )
      const statuses = result.map((answer) => answer.status)
      t.check(
        statuses.every((status) => [200, 400, 413, 429, 503].includes(status)),
        statuses.join(' '),
      )
      const large = await t.post(PATH, Buffer.alloc(65 * MIB), { 'content-type': 'image/jpeg' })
      t.check(large.status === 400 && large.text.includes('--http-max-input-size'), `${large.status} ${large.text}`)
      return `statuses ${statuses.join(' ')}, health within ${worstMs.toFixed(0)} ms, ${t.rssMiB() - before} MiB more`
    },
  },
]
