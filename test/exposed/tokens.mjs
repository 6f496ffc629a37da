/** Tokens of an issuer as the table shows them: good ones, and those that a stranger would try. */
import { createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

export const ISSUER = 'https://issuer.example'
export const AUDIENCE = 'nereid'
const KID = 'k'
const RULES = [
  { name: 'admins', claim: 'groups', value: 'ops', scopes: [{ verbs: ['all'] }] },
  { name: 'people', value: 'infer', scopes: [{ verbs: ['inference', 'metadata'], models: ['simple'] }] },
]

const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
const rsa = () => generateKeyPairSync('rsa', { modulusLength: 2048 })

/** @returns paths of the keys file and of the issuer's key set, and the tokens */
export function makeTokens(directory) {
  const [issuer, stranger] = [rsa(), rsa()]
  const file = (name, value) => {
    const path = join(directory, name)
    writeFileSync(path, JSON.stringify(value))
    return path
  }
  const message = (header, claims) => {
    const now = Math.floor(Date.now() / 1000)
    return (
      `${part({ alg: 'RS256', kid: KID, ...header })}.` +
      `${part({ iss: ISSUER, aud: AUDIENCE, sub: 'ann', exp: now + 3600, groups: ['ops'], ...claims })}`
    )
  }
  const token = (claims, { by = issuer, ...header } = {}) => {
    const text = message(header, claims)
    return `${text}.${sign('sha256', Buffer.from(text), by.privateKey).toString('base64url')}`
  }
  const secret = message({ alg: 'HS256' })
  return {
    file: file('tokens.json', { oidc: { rules: RULES } }),
    set: file('jwks.json', { keys: [{ ...issuer.publicKey.export({ format: 'jwk' }), kid: KID, alg: 'RS256' }] }),
    all: token({}),
    some: token({ groups: [], scope: 'read infer' }),
    expired: token({ exp: Math.floor(Date.now() / 1000) - 3600 }),
    audience: token({ aud: 'another' }),
    issuer: token({ iss: 'https://other.example' }),
    unsigned: `${message({ alg: 'none' })}.`,
    // Who checks a token with a secret and takes the public key for one, takes what everybody can make.
    confused: `${secret}.${createHmac('sha256', issuer.publicKey.export({ format: 'pem', type: 'spki' }))
      .update(secret)
      .digest('base64url')}`,
    forged: token({}, { by: stranger }),
    unknown: token({}, { by: stranger, kid: 'other' }),
  }
}

/** Stand-ins for docs/security/permissions.md, which shows no token. */
export const NO_TOKENS = {
  file: 'keys.json',
  set: 'jwks.json',
  all: '',
  some: '',
  expired: '',
  audience: '',
  issuer: '',
  unsigned: '',
  confused: '',
  forged: '',
  unknown: '',
}
