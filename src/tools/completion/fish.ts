/** Completion for fish. */

import type { Completed, CompletedOption } from './completed.js'

export function fish({ flags, commands }: Completed): string {
  const names = commands.map((c) => c.name)
  const noCommand = `not __fish_seen_subcommand_from ${names.join(' ')}`
  const lines = [
    '# Completion of nereid for fish: write this to ~/.config/fish/completions/nereid.fish, and for ' +
      'tritonserver to tritonserver.fish beside it.',
    '',
    'for program in nereid tritonserver',
    '  complete -c $program -f',
    ...commands.map(
      ({ name, meaning }) => `  complete -c $program -n __fish_use_subcommand -a ${name} -d ${quoted(meaning)}`,
    ),
    `  complete -c $program -n __fish_use_subcommand -a serve -d ${quoted('Serve models (the default command)')}`,
    ...flags.map((flag) => option(noCommand, flag)),
  ]
  for (const { name, options, takesFlags, words, files } of commands) {
    const condition = `__fish_seen_subcommand_from ${name}`
    lines.push(...options.map((one) => option(condition, one)))
    if (takesFlags)
      lines.push(
        ...flags.filter((flag) => !options.some((o) => o.name === flag.name)).map((flag) => option(condition, flag)),
      )
    if (words.length > 0) lines.push(`  complete -c $program -n ${quoted(condition)} -a ${quoted(words.join(' '))}`)
    for (const ending of files)
      lines.push(`  complete -c $program -n ${quoted(condition)} -a ${quoted(`(__fish_complete_suffix ${ending})`)}`)
  }
  return `${lines.join('\n')}\nend\n`
}

function option(condition: string, { name, values, isOptional, meaning }: CompletedOption): string {
  const head = `  complete -c $program -n ${quoted(condition)} -l ${name} -d ${quoted(meaning)}`
  switch (values.kind) {
    case 'none':
      return head
    case 'words':
      return `${head} -x -a ${quoted(values.words.join(' '))}`
    case 'directory':
      return `${head} -x -a '(__fish_complete_directories)'`
    case 'path':
      return `${head} -r -F`
    case 'any':
      return isOptional ? head : `${head} -x`
  }
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`
}
