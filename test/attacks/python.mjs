/**
 * Configurations and files of Python models that ask for more, or for other places, than they may. No Python is started
 * by any of them.
 */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

const INPUT = ['INPUT0', 'TYPE_INT32', [16]]
const OUTPUT = ['OUTPUT0', 'TYPE_INT32', [16]]
const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`
const model = (more, files = {}) => ({
  config: config('python', 0, [INPUT], [OUTPUT], more),
  files: { '1/model.py': 'raise SystemExit\n', ...files },
})

/** One entry of a tar archive: type, name, contents, what a link points to. */
function entry(type, name, contents = '', to = '', size = contents.length) {
  const header = Buffer.alloc(512)
  header.write(name, 0, 100)
  header.write('0000755\0', 100)
  header.write(`${size.toString(8).padStart(11, '0')}\0`, 124)
  header.write('        ', 148)
  header.write(type, 156)
  header.write(to, 157, 100)
  header.write('ustar\u000000', 257)
  header.write(
    `${header
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
  )
  return Buffer.concat([header, Buffer.from(contents), Buffer.alloc((512 - (contents.length % 512)) % 512)])
}

const archive = (...entries) => gzipSync(Buffer.concat([...entries, Buffer.alloc(1024)]))

/** Where the archives would like to write. */
const outside = mkdtempSync(join(tmpdir(), 'nereid-outside-'))
process.once('exit', () => rmSync(outside, { recursive: true, force: true }))

/** Archive → what the load says. */
const ARCHIVES = {
  up: [
    archive(entry('0', '../../../../../../../../evil', 'x')),
    /its entry '[./evil]*' has a path outside of the archive/,
  ],
  absolute: [archive(entry('0', join(outside, 'evil'), 'x')), /has a path outside of the archive/],
  link: [
    archive(entry('2', 'bin', '', outside), entry('0', 'bin/evil', 'x')),
    /its entry 'bin' links to a location outside of the archive/,
  ],
  hard: [
    archive(entry('1', 'passwd', '', '/etc/passwd')),
    /its entry 'passwd' links to a location outside of the archive/,
  ],
  stairs: [
    archive(entry('0', 'a/b/x'), entry('2', 'a/b/l', '', '../..'), entry('2', 'm', '', 'a/b/l/..')),
    /links to a location outside of the archive/,
  ],
  through: [archive(entry('2', 'd', '', 'e'), entry('0', 'd/evil', 'x')), /its entry 'd' occurs twice/],
  name: [archive(entry('L', '././@LongLink', '', '', 2 ** 30)), /an entry's name and attributes have 1073741824 bytes/],
  device: [archive(entry('3', 'bin/activate')), /is neither a file nor a directory nor a link/],
  fifo: [archive(entry('6', 'bin/activate')), /is neither a file nor a directory nor a link/],
  // Refused by what it announces, before a byte of it is written.
  bomb: [
    archive(
      entry('0', 'zeros', '', '', 2 ** 33 - 1),
      ...Array.from({ length: 9 }, () => entry('0', 'zeros', '', '', 2 ** 33 - 1)),
    ),
    /archive_read_open_filename\(\) failed\.|has more than/,
  ],
  cut: [
    archive(entry('0', 'bin/activate', 'x'.repeat(5000))).subarray(0, 30),
    /archive_read_open_filename\(\) failed\./,
  ],
  empty: [Buffer.alloc(0), /archive_read_open_filename\(\) failed\./],
  nothing: [
    archive(entry('0', 'bin/python', '')),
    /bin\/activate does not exist\. The Python environment should contain an 'activate' script\./,
  ],
}

const environment = parameter('EXECUTION_ENV_PATH', '$$TRITON_MODEL_DIRECTORY/env.tar.gz')

/** Numbers, names and places of configurations → what the load says. */
const SETTINGS = {
  file_up: [model('default_model_filename: "../../../outside.py"\n'), /must stay inside the version directory/],
  file_absolute: [model('default_model_filename: "/etc/passwd.py"\n'), /must stay inside the version directory/],
  environment_elsewhere: [
    model(parameter('EXECUTION_ENV_PATH', '/usr')),
    /is neither in the model repository nor below a root/,
  ],
  environment_up: [
    model(parameter('EXECUTION_ENV_PATH', '$$TRITON_MODEL_DIRECTORY/../../../../../../usr')),
    /is neither in the model repository nor below a root|Failed to get the canonical path/,
  ],
  first_segment: [
    model(parameter('nereid.python.shm-default-byte-size', '9223372036854775807')),
    /shm-default-byte-size 1099511627776 is more than shm-max-byte-size/,
  ],
  small_segment: [
    model(parameter('nereid.python.shm-default-byte-size', '-1')),
    /shm-default-byte-size can't be smaller than 4 MiBs/,
  ],
  no_number: [model(parameter('nereid.python.execute-timeout-ms', '1e9')), null],
  huge_number: [model(parameter('nereid.python.memory-limit-bytes', '9'.repeat(30))), /Invalid argument: stol/],
  'name;id': [model(''), /Invalid stub name: contains invalid characters/],
  'name$(id)': [model(''), /Invalid stub name: contains invalid characters/],
}

const explicit = server('Python models', {
  flags: [
    '--model-control-mode=explicit',
    '--load-model=simple',
    '--backend-config=python,python-executable=/nonexistent/python',
  ],
  models: (root) => {
    for (const [name, [bytes]] of Object.entries(ARCHIVES))
      writeModel(root, `archive_${name}`, model(environment, { 'env.tar.gz': bytes }))
    for (const [name, [files]] of Object.entries(SETTINGS)) writeModel(root, name, files)
  },
})

async function load(t, name, text) {
  const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
  t.check(answer.status === 400 && text.test(answer.text), `${name}: ${answer.status} ${answer.text.slice(0, 300)}`)
}

export const rows = [
  {
    attack:
      'archives of Python environments with names and links that lead out, names of 1 GB, devices, pipes, 80 ' +
      'GB of announced zeros, and cut ones',
    limit:
      'Only regular files, directories and links that stay inside are accepted, and nothing is written through a ' +
      'link. Limits are `backend_python::extract::LIMITS`, `PATH_BYTES_MAX` and `DEPTH_MAX`. The new directory is ' +
      'private to this user, and is removed when the archive is rejected.',
    server: explicit,
    async run(t) {
      for (const [name, [, text]] of Object.entries(ARCHIVES)) await load(t, `archive_${name}`, text)
      t.check(readdirSync(outside).length === 0, `written outside: ${readdirSync(outside)}`)
      return `${Object.keys(ARCHIVES).length} archives`
    },
  },
  {
    attack:
      'configurations of Python models with files and environments elsewhere, names for a shell, and numbers ' +
      'beyond all memory',
    limit:
      'Code is in its version directory. An environment is in the repository, or below an `environment-root` if ' +
      'models are loaded over the network. No shell is used, and the 21 characters that Triton rejects are ' +
      'rejected. Sizes and times end at `BYTES_MAX` and `SECONDS_MAX` (`backend_python::options`).',
    server: explicit,
    async run(t) {
      for (const [name, [, text]] of Object.entries(SETTINGS)) {
        // Valid configurations fail at the interpreter, which this server does not have.
        await load(
          t,
          name,
          text ??
            /Python backend: no usable interpreter: \/nonexistent\/python cannot be started: .* \(chosen by --backend-config=python,python-executable\)/,
        )
      }
      return `${Object.keys(SETTINGS).length} configurations`
    },
  },
]
