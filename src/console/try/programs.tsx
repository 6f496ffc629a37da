/** A call as programs to copy. */

import { useState } from 'preact/hooks'
import { LANGUAGES, type Language } from '../snippets.js'
import { wrongOf } from './fields.js'
import { Pre } from './outputs.js'

/** `write` throws if the call cannot be made. It is asked only while this is open. */
export function Programs({
  write,
  hasKey,
  needs = 'tritonclient[all]',
}: {
  write: (language: Language) => string
  hasKey: boolean
  /** The package of the program in Python; none if it is empty. */
  needs?: string
}) {
  const [isOpen, setOpen] = useState(false)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The same call as a program</summary>
      {isOpen && <Open write={write} hasKey={hasKey} needs={needs} />}
    </details>
  )
}

function Open({ write, hasKey, needs }: { write: (language: Language) => string; hasKey: boolean; needs: string }) {
  const [language, setLanguage] = useState<Language>('curl')
  let text = ''
  const wrong = wrongOf(() => (text = write(language)))
  return (
    <>
      <div class="row" role="group" aria-label="Language">
        {LANGUAGES.map((one) => (
          <button key={one} type="button" aria-pressed={one === language} onClick={() => setLanguage(one)}>
            {one}
          </button>
        ))}
        {wrong === '' && <Copy text={text} />}
      </div>
      {wrong === '' ? (
        <Pre isCode label={`The call in ${language}`} text={text} />
      ) : (
        <p class="quiet">There is no program for what is filled in: {wrong}</p>
      )}
      <p class="quiet">
        {language === 'curl' ? (
          'For a shell of POSIX.'
        ) : language === 'Python' ? (
          needs !== '' && (
            <>
              Needs <code>pip install "{needs}"</code>.
            </>
          )
        ) : (
          <>
            Save it as <code>call.mjs</code>. Needs <code>npm install nereid</code>.
          </>
        )}
        {hasKey && (
          <>
            {' '}
            The key is read from the variable <code>NEREID_KEY</code>.
          </>
        )}
      </p>
    </>
  )
}

/** Sends a form. It stays enabled while a call runs, since a button that is not loses the focus. */
export const SendButton = ({ label = 'Send', isRunning }: { label?: string; isRunning: boolean }) => (
  <button
    type="submit"
    class="primary"
    aria-disabled={isRunning}
    onClick={(event) => isRunning && event.preventDefault()}
  >
    {label}
  </button>
)

export function Copy({ text }: { text: string }) {
  const [says, setSays] = useState('')
  const copy = () => {
    // Absent in pages over plain HTTP from other hosts.
    const clipboard = navigator.clipboard as Clipboard | undefined
    const done = clipboard?.writeText(text) ?? Promise.reject(new Error())
    const byHand = 'the browser does not allow it here: select it and copy it by hand'
    done.then(
      () => setSays('copied'),
      () => setSays(byHand),
    )
  }
  return (
    <>
      <button type="button" onClick={copy}>
        Copy
      </button>
      <span role="status" class="quiet">
        {says}
      </span>
    </>
  )
}
