/** Help by topic, the manual page and completion: made from the tables, and read by common programs. */

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.js'
import { FLAGS, GROUPS, TOPICS, type Flag } from '../../src/cli/flags.js'
import { helpText } from '../../src/cli/help.js'
import { manPage } from '../../src/cli/man.js'
import { ROOT } from '../server/harness.js'

const MAIN = join(ROOT, 'dist/cli/main.js')
const directory = mkdtempSync(join(tmpdir(), 'nereid-help-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const TABLE: readonly Flag[] = FLAGS

function nereid(...args: string[]): { code: number | null; stdout: string; stderr: string } {
  const ran = spawnSync(process.execPath, [MAIN, ...args], { encoding: 'utf8', timeout: 20_000 })
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr }
}

const has = (program: string, ...args: string[]): boolean => spawnSync(program, args).status === 0

test('every group of options but Global has a topic', () => {
  expect(TOPICS.map((topic) => topic.group).toSorted()).toEqual(GROUPS.filter((group) => group !== 'Global').toSorted())
  const names = ['all', ...TOPICS.map((topic) => topic.name), ...COMMANDS.map((command) => command.name)]
  expect(new Set(names).size).toBe(names.length)
})

test('every meaning of a command is ASCII and a sentence', () => {
  for (const { meaning, options = [] } of COMMANDS)
    for (const text of [meaning, ...options.map((o) => o.meaning)]) expect(text).toMatch(/^[\x20-\x7e]+\.$/)
})

test('nereid --help is an overview: it names every topic and command', () => {
  const { code, stdout } = nereid('--help')
  expect(code).toBe(0)
  expect(nereid('help').stdout).toBe(stdout)
  for (const { name } of [...TOPICS, ...COMMANDS]) expect(stdout).toMatch(new RegExp(`^ {2}${name} `, 'm'))
  const lines = stdout.split('\n')
  expect(lines.filter((line) => line.length > 100)).toEqual([])
  expect(lines.length).toBeLessThan(70)
})

test.each([
  ['-h', nereid('--help').stdout],
  ['-v', nereid('--version').stdout],
  ['version', nereid('--version').stdout],
])('nereid %s ends with 0 and says what its long form does', (argument, expected) => {
  expect(expected).not.toBe('')
  expect(nereid(argument)).toEqual({ code: 0, stdout: expected, stderr: '' })
})

test('-h and -v stand for --help and --version of a server, too', () => {
  expect([nereid('serve', '-h').code, nereid('serve', '-h').stdout]).toEqual([1, helpText('nereid')])
  expect(nereid('--http-port=1', '-v').stdout).toBe(nereid('--version').stdout)
  for (const command of ['init', 'check', 'gpu'])
    expect(nereid(command, '-h'), command).toEqual(nereid(command, '--help'))
})

test.each([
  ['chekc', 'nereid check'],
  ['strat', 'nereid serve'],
  ['Serve', 'nereid serve'],
  ['validate', 'nereid check'],
  ['completions', 'nereid completion'],
  ['resnet.onnx', 'nereid init resnet.onnx'],
  [directory, `nereid --model-repository=${directory}`],
])('%s is no command: what was meant is told', (word, meant) => {
  const { code, stderr } = nereid(word)
  expect([code, stderr.split('\n')[1]]).toEqual([1, `Unexpected argument: ${word}; did you mean '${meant}'?`])
})

test('a word that is like no command is an unexpected argument, without a suggestion', () => {
  expect(nereid('xyzzy').stderr).toMatch(/\nUnexpected argument: xyzzy\n$/)
})

test('each option is in the page of exactly one topic', () => {
  const pages = TOPICS.map(({ name }) => nereid('help', name).stdout)
  for (const flag of TABLE.filter((f) => f.group !== 'Global')) {
    expect(
      pages.filter((page) => new RegExp(`^ {2}--${flag.name}(=|$)`, 'm').test(page)),
      flag.name,
    ).toHaveLength(1)
  }
  expect(nereid('--help', 'http').stdout).toBe(pages[TOPICS.findIndex(({ name }) => name === 'http')])
}, 120_000)

test('a command tells its options, by help and by --help', () => {
  const { code, stdout } = nereid('help', 'init')
  expect(code).toBe(0)
  for (const { name } of COMMANDS.find((c) => c.name === 'init')?.options ?? []) expect(stdout).toContain(`  --${name}`)
  for (const args of [['--help'], ['model.onnx', '--out=x', '-h']])
    expect(nereid('init', ...args).stdout, args.join(' ')).toBe(stdout)
  for (const name of ['gen', 'check', 'gpu', 'config', 'doctor'])
    expect(nereid(name, 'x', '--help'), name).toEqual(nereid('help', name))
  expect(nereid('help', 'serve').stdout).toBe(nereid('serve', '--help').stdout)
  expect(nereid('doctor', '--', 'tritonserver', '--help').stdout).not.toContain('Usage: nereid doctor')
}, 60_000)

test('unwritable output is reported without a stack', () => {
  for (const args of ['help all', 'check examples/models', 'config']) {
    const { status, stderr } = spawnSync('sh', ['-c', `exec node dist/cli/main.js ${args} > /dev/full`], {
      encoding: 'utf8',
    })
    expect([status, stderr], args).toEqual([
      1,
      'error: standard output can not be written: ENOSPC: no space left on device, write\n',
    ])
  }
}, 60_000)

test('an unknown topic ends with 1 and names those there are', () => {
  const { code, stderr } = nereid('help', 'htpt')
  expect([code, stderr]).toEqual([
    1,
    expect.stringContaining("there is no help on 'htpt'; there is on all, serve, server, models, http"),
  ])
})

test('R-54: tritonserver --help prints every option and ends with 1', () => {
  const link = join(directory, 'tritonserver')
  symlinkSync(MAIN, link)
  const ran = spawnSync(process.execPath, ['--preserve-symlinks-main', link, '--help'], { encoding: 'utf8', cwd: ROOT })
  const direct = spawnSync(process.execPath, [MAIN, '--model-repository=/m', '--help'], { encoding: 'utf8' })
  expect([direct.status, direct.stdout]).toEqual([1, helpText('nereid')])
  if (ran.stderr === '') expect([ran.status, ran.stdout]).toEqual([1, helpText('tritonserver')])
})

test('docs/nereid.1 matches the tables', async () => {
  await expect(manPage()).toMatchFileSnapshot('../../docs/nereid.1')
})

const PAGE = join(directory, '.nereid.1')
writeFileSync(PAGE, manPage())

test.skipIf(!has('sh', '-c', 'command -v mandoc'))('mandoc finds nothing to complain about in the manual page', () => {
  const { stdout } = spawnSync('mandoc', ['-T', 'lint', '-W', 'style', PAGE], { encoding: 'utf8' })
  // It looks for its own system's manual pages.
  expect(stdout.split('\n').filter((line) => line !== '' && !line.includes('referenced manual not found'))).toEqual([])
})

test.skipIf(!has('sh', '-c', 'command -v man'))('man shows the manual page without a warning', () => {
  const ran = spawnSync('man', ['--warnings', '-E', 'UTF-8', '-l', '-Tutf8', PAGE], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C.UTF-8' },
  })
  expect([ran.status, ran.stderr]).toEqual([0, ''])
})

/** Bash's completions for this line, with the cursor at its end. */
function completions(line: string): string[] {
  const script = join(directory, 'completion.bash')
  writeFileSync(script, nereid('completion', 'bash').stdout)
  // Split as readline does: = is a separate word.
  const words = line
    .split(' ')
    .flatMap((word) =>
      word.split(/(=)/).filter((part, i, all) => part !== '' || (i === all.length - 1 && all.length === 1)),
    )
  const program = `
    source ${script}
    COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')})
    COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 ))
    _nereid 2>&1
    printf '%s\\n' "\${COMPREPLY[@]}"`
  const ran = spawnSync('bash', ['--norc', '-c', program], { encoding: 'utf8', cwd: directory })
  expect(ran.stderr).toBe('')
  return ran.stdout
    .split('\n')
    .filter((one) => one !== '')
    .toSorted()
}

describe('completion in bash', () => {
  mkdirSync(join(directory, 'models'), { recursive: true })
  writeFileSync(join(directory, 'net.onnx'), '')
  writeFileSync(join(directory, 'notes.txt'), '')

  test.each([
    ['nereid ', [...COMMANDS.map((c) => c.name), 'serve'].toSorted()],
    ['nereid comp', ['completion']],
    ['nereid completion ', ['bash', 'fish', 'zsh']],
    ['nereid completion z', ['zsh']],
    ['nereid --http-p', ['--http-port=']],
    ['nereid --model-control-mode=', ['explicit', 'none', 'poll']],
    ['nereid --model-control-mode=e', ['explicit']],
    ['nereid --model-control-mode ex', ['explicit']],
    ['nereid --exit-on-error=t', ['true']],
    ['nereid --model-repository=m', ['models/']],
    ['nereid --model-repository m', ['models/']],
    ['nereid --log-file=n', ['net.onnx', 'notes.txt']],
    ['nereid --disable-auto-complete-config --allow-h', ['--allow-http=']],
    ['nereid serve --log-form', ['--log-format=']],
    ['nereid init n', ['net.onnx']],
    [
      'nereid init net.onnx --',
      ['--batch', '--example', '--export', '--file=', '--force', '--link', '--name=', '--out=', '--python', '--task='],
    ],
    ['nereid init --batch n', ['net.onnx']],
    ['nereid check --fo', ['--format=']],
    ['nereid check --format=', ['github', 'json', 'text']],
    ['nereid check --model-rep', ['--model-repository=']],
    ['nereid help http', ['http']],
    ['tritonserver --trace-c', ['--trace-config=', '--trace-count=']],
  ])('%j is completed by %j', (line, expected) => {
    expect(completions(line)).toEqual(expected)
  })

  test('every option is offered', () => {
    const offered = completions('nereid --')
    for (const flag of TABLE) expect(offered).toContain(flag.kind === 'switch' ? `--${flag.name}` : `--${flag.name}=`)
  })
})

test.skipIf(!has('zsh', '--version'))(
  'zsh reads its completion and completes a line',
  () => {
    const script = join(directory, '_nereid')
    writeFileSync(script, nereid('completion', 'zsh').stdout)
    expect(spawnSync('zsh', ['-n', script], { encoding: 'utf8' }).stderr).toBe('')
    // Completion needs a line editor, so the shell runs on a pseudo terminal. A key after Tab writes the line
    // to a file.
    const result = join(directory, 'buffer')
    const program = `
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "autoload -Uz compinit; compinit -u -D; source ${script}"
    zpty -w shell 'note() { print -r -- "$BUFFER" > ${result} }; zle -N note; bindkey "^X" note; print -r BE''GIN'
    zpty -r shell out '*BEGIN*'
    zpty -n -w shell "$1"$'\\t\\x18'
    for look in {1..300}; do [[ -s ${result} ]] && break; sleep 0.1; done
    zpty -d shell`
    const complete = (line: string): string => {
      rmSync(result, { force: true })
      spawnSync('zsh', ['-f', '-c', program, 'zsh', line], { cwd: directory, timeout: 30_000 })
      return readFileSync(result, 'utf8').trimEnd()
    }
    expect(complete('nereid compl')).toBe('nereid completion')
    expect(complete('nereid --http-por')).toBe('nereid --http-port=')
    expect(complete('nereid --model-control-mode=exp')).toBe('nereid --model-control-mode=explicit')
    expect(complete('nereid init --nam')).toBe('nereid init --name=')
    expect(complete('nereid check --model-repository=mod')).toBe('nereid check --model-repository=models/')
  },
  120_000,
)

test.skipIf(!has('fish', '--version'))('fish reads its completion and completes a line', () => {
  const script = join(directory, 'nereid.fish')
  writeFileSync(script, nereid('completion', 'fish').stdout)
  const complete = (line: string): string[] => {
    const ran = spawnSync('fish', ['--no-config', '-c', `source ${script}; complete -C '${line}'`], {
      encoding: 'utf8',
      cwd: directory,
    })
    expect(ran.stderr).toBe('')
    return ran.stdout
      .split('\n')
      .map((one) => one.split('\t')[0] ?? '')
      .filter((one) => one !== '')
  }
  expect(complete('nereid ')).toEqual(expect.arrayContaining([...COMMANDS.map((c) => c.name), 'serve']))
  expect(complete('nereid --http-p')).toEqual(['--http-port'])
  expect(complete('nereid --model-control-mode=')).toEqual(expect.arrayContaining(['--model-control-mode=explicit']))
  expect(complete('nereid completion ')).toEqual(['bash', 'fish', 'zsh'])
  expect(complete('nereid init --na')).toEqual(['--name'])
  expect(complete('tritonserver --grpc-p')).toEqual(['--grpc-port'])
})

test('an unknown shell is refused', () => {
  expect(nereid('completion', 'tcsh')).toEqual({
    code: 1,
    stdout: '',
    stderr: 'error: Usage: nereid completion (bash | zsh | fish)\n',
  })
})

test('the manual page is in the package', () => {
  const { man, files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    man: string
    files: string[]
  }
  expect(man).toBe('docs/nereid.1')
  expect(files).toContain(man)
})
