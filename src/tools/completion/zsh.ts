/** Completion for zsh, by its function `_arguments`. */

import type { Completed, CompletedCommand, CompletedOption } from './completed.js'

export function zsh({ flags, commands }: Completed): string {
  return `#compdef nereid tritonserver
# Completion of nereid for zsh: write this to a file _nereid in a directory of $fpath,
# or put into ~/.zshrc, after compinit,
#   source <(nereid completion zsh)

_nereid() {
  local -a flags commands
  flags=(
${flags.map(specification).join('\n')}
  )
  commands=(
${commands.map(({ name, meaning }) => `    ${quoted(`${name}:${meaning}`)}`).join('\n')}
    'serve:Serve models (the default command)'
  )
  case \${words[2]} in
${commands.map(commandCase).join('\n')}
    *)
      if (( CURRENT == 2 )) && [[ \${words[2]} != -* ]]; then
        _describe -t commands command commands
      fi
      [[ \${words[2]} == serve ]] && { shift words; (( CURRENT-- )) }
      _arguments $flags
      ;;
  esac
}

if [[ \${funcstack[1]} == _nereid ]]; then
  _nereid "$@"
else
  compdef _nereid nereid tritonserver
fi
`
}

function commandCase({ name, options, takesFlags, words, files }: CompletedCommand): string {
  const rest =
    words.length > 0
      ? `'1:what:(${words.join(' ')})'`
      : files.length > 0
        ? `'*:file:_files -g "*(${files.map((f) => `*${f}`).join('|')})"'`
        : ''
  const all = [
    ...options.map((o) => specification(o).trim()),
    ...(takesFlags ? ['$flags'] : []),
    ...(rest === '' ? [] : [rest]),
  ]
  // A name without `=` is still being typed.
  return `    ${name})
      (( CURRENT == 2 )) && { _describe -t commands command commands; return }
      shift words; (( CURRENT-- ))
      _arguments ${all.join(' \\\n        ')}
      ;;`
}

function specification({ name, values, isOptional, meaning }: CompletedOption): string {
  const text = meaning.replace(/[[\]\\:]/g, '\\$&')
  // May be repeated: some flags are lists, and the server warns that the last of others counts.
  const head = `*--${name}${values.kind === 'none' ? '' : isOptional ? '=-' : '='}[${text}]`
  switch (values.kind) {
    case 'none':
      return `    ${quoted(head)}`
    case 'words':
      return `    ${quoted(`${head}${isOptional ? '::' : ':'}value:(${values.words.join(' ')})`)}`
    case 'directory':
      return `    ${quoted(`${head}:directory:_files -/`)}`
    case 'path':
      return `    ${quoted(`${head}:path:_files`)}`
    case 'any':
      return `    ${quoted(`${head}${isOptional ? '::' : ':'}${values.what.replace(/[[\]\\:]/g, '\\$&')}: `)}`
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}
