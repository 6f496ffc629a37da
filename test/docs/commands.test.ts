/** docs/commands.md lists the commands of `nereid` from their table. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { COMMANDS, type Command, type CommandOption } from '../../src/cli/commands.js'
import { ROOT } from './pages.js'

const HEAD = `# Commands

<!-- Made from src/cli/commands.ts; run the tests of test/docs with \`-u\` after a change there. -->

This page lists the commands of \`nereid\`. A command is the first argument. Without a command, \`nereid\` starts a server: \`nereid --model-repository=PATH\` takes the
[flags](flags.md) of the server, as \`tritonserver\` does.
`

const cell = (text: string) => text.replaceAll('|', '\\|')

function written({ name, value, isValueOptional }: CommandOption): string {
  if (value === undefined) return `--${name}`
  return isValueOptional === true ? `--${name}[=<${value}>]` : `--${name}=<${value}>`
}

function section({ name, usage, meaning, options = [], takesFlags }: Command): string {
  const rows = options.map((option) => `| \`${cell(written(option))}\` | ${cell(option.meaning)} |`)
  const table = rows.length === 0 ? '' : `\n| option | meaning |\n|---|---|\n${rows.join('\n')}\n`
  const flags = takesFlags === true ? '\nIt also takes the [flags](flags.md) of the server.\n' : ''
  return `## ${name}\n\n\`${`nereid ${name} ${usage}`.trimEnd()}\`\n\n${meaning}\n${table}${flags}`
}

test('docs/commands.md matches the table of commands', async () => {
  expect(COMMANDS.length).toBeGreaterThan(2)
  await expect([HEAD, ...COMMANDS.map(section)].join('\n')).toMatchFileSnapshot(join(ROOT, 'docs/commands.md'))
})
