// The shell script parser of `nereid doctor`.
import { describe, expect, test } from 'vitest'
import { ShellError, WORDS_MAX, shellCommands } from '../../src/tools/doctor/shell.js'

const commands = (text: string): string[][] => shellCommands(text).map((words) => words.map(({ text: word }) => word))

describe('words', () => {
  const cases: [string, string, string[]][] = [
    ['blanks', '  a \t b  c ', ['a', 'b', 'c']],
    ['single quotes keep everything', `'a $X "b" \\' c`, ['a $X "b" \\', 'c']],
    ['double quotes keep blanks, not escapes', '"a b" "c\\"d" "e\\\\f" "g\\h"', ['a b', 'c"d', 'e\\f', 'g\\h']],
    ['parts of one word', `a'b'"c"d`, ['abcd']],
    ['an empty word', `a '' ""`, ['a', '', '']],
    ['an escaped blank', 'a\\ b c', ['a b', 'c']],
    ['continued lines', 'a \\\n  b \\\r\n c', ['a', 'b', 'c']],
    ['a continued word', 'a\\\nb', ['ab']],
    ['comments', 'a # b\nc#d', ['a', 'c#d']],
    ['redirections and their files', 'a > out.log 2>&1 < in b', ['a', 'b']],
    [
      'placeholders of documentation',
      'a <b> c:<x.y>-z -v</d/e>:/f <g h i> <j>/k',
      ['a', '<b>', 'c:<x.y>-z', '-v</d/e>:/f', '<g h i>', '<j>/k'],
    ],
    ['redirections that look like them', 'a <b >c <d>e <f>/dev/null <g>"$H" 2<i>j <k -n 2>l < m > n', ['a', '-n']],
    ['a quote that is not closed', `a 'b c`, ['a', 'b c']],
    ['a variable from outside stays', 'a $X ${Y} "$Z/1"', ['a', '$X', '${Y}', '$Z/1']],
    ['defaults', 'a ${X:-b} ${Y-c} ${Z:="d e"} "${V:-}"', ['a', 'b', 'c', 'd e', '']],
    ['what only a shell knows', 'a $(pwd)/m `id -u` "$(cat x | wc)"', ['a', '$(pwd)/m', '`id -u`', '$(cat x | wc)']],
    ['a dollar alone', 'a $ b$', ['a', '$', 'b$']],
  ]
  test.each(cases)('%s', (_, text, words) => expect(commands(text).flat()).toEqual(words))
})

describe('commands', () => {
  test('end with operators and lines; here-documents are no commands', () => {
    expect(commands('a && b || c; d & e | f\ng')).toEqual([['a'], ['b'], ['c'], ['d'], ['e'], ['f'], ['g']])
    expect(commands('cat <<EOF > x\ntritonserver --no\nEOF\nb')).toEqual([['cat'], ['b']])
    expect(commands("cat <<-'END'\n  a\n  END\nb")).toEqual([['cat'], ['b']])
    expect(commands('if a; then exec b; fi')).toEqual([['a'], ['b'], ['fi']])
  })

  test('variables that the script sets are put in, also with a command of their own', () => {
    expect(commands('TAG=24.05\nexport IMG="x:$TAG-py3"\nrun "${IMG}" ${TAG:-1} ${TAG:+set}')).toEqual([
      ['run', 'x:24.05-py3', '24.05', '${TAG:+set}'],
    ])
    expect(commands('A=1 run $A')).toEqual([['A=1', 'run', '$A']])
  })

  test('every word has its line, and whether a part of it is unknown', () => {
    const [command] = shellCommands('\n\na \\\n  b$X "c\nd" e')
    expect(command?.map(({ line, isOpen }) => [line, isOpen])).toEqual([
      [3, false],
      [4, true],
      [4, false],
      [5, false],
    ])
  })
})

test('texts that grow without end are refused or bounded, in no time', () => {
  const from = performance.now()
  const doubling = Array.from({ length: 64 }, () => 'A="$A$A"').join('\n')
  expect(() => shellCommands(`A=aaaaaaaa\n${doubling}`)).toThrow(ShellError)
  expect(() => shellCommands('a '.repeat(WORDS_MAX + 1))).toThrow(ShellError)
  expect(() => shellCommands(`a ${'${'.repeat(100_000)}`)).toThrow(ShellError)
  expect(() => shellCommands(`a ${'$('.repeat(100_000)}`)).toThrow(ShellError)
  for (const text of ['"', "'", '`', '\\', '$(', '${', '<<', '<<EOF', '\\\n']) {
    for (const repeated of [text, text.repeat(10_000), `a ${text}`.repeat(5000)]) {
      try {
        shellCommands(repeated)
      } catch (error) {
        expect(error).toBeInstanceOf(ShellError)
      }
    }
  }
  expect(performance.now() - from).toBeLessThan(10_000)
})
