/** A call as programs to copy. */

import { useState } from 'preact/hooks'
import { LANGUAGES, type Language } from '../snippets.js'
import { Pre } from './outputs.js'

/** `write` throws if the call cannot be made. It is asked only while this is open. */
export function Programs({ write, needs = 'tritonclient[all]' }: {
  write: (language: Language) => string
  /** The package of the program in Python; none if it is empty. */
  needs?: string
}) {
  const [isOpen, setOpen] = useState(false)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The same call as a program</summary>
      {isOpen && <Open write={write} needs={needs} />}
    </details>
  )
}

function Open({ write, needs }: { write: (language: Language) => string; needs: string }) {
  const [language, setLanguage] = useState<Language>('curl')
  const text = textOf(() => write(language))
  return (
    <>
      <div class="row" role="group" aria-label="Language">
        {LANGUAGES.map((one) => (
          <button key={one} type="button" aria-pressed={one === language} onClick={() => setLanguage(one)}>
            {one}
          </button>
        ))}
        <Copy text={text} />
      </div>
      <Pre isCode label={`The call in ${language}`} text={text} />
      <p class="quiet">
        {language === 'curl' ? 'For a shell of POSIX.'
          : language === 'Python' ? needs !== '' && <>Needs <code>pip install "{needs}"</code>.</>
            : <>Needs <code>npm install nereid</code>.</>}
        {' '}A key is read from the variable <code>NEREID_KEY</code>.
      </p>
    </>
  )
}

function textOf(make: () => string): string {
  try {
    return make()
  } catch (error) {
    return (error as Error).message
  }
}

export function Copy({ text }: { text: string }) {
  const [says, setSays] = useState('')
  const copy = () => {
    // Absent in pages over plain HTTP from other hosts.
    const clipboard = navigator.clipboard as Clipboard | undefined
    const done = clipboard?.writeText(text) ?? Promise.reject(new Error())
    const byHand = 'the browser does not allow it here: select it and copy it by hand'
    done.then(() => setSays('copied'), () => setSays(byHand))
  }
  return <><button type="button" onClick={copy}>Copy</button><span role="status" class="quiet">{says}</span></>
}
