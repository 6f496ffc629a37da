/** Packages by system, and the advice without one. */
import { expect, test } from 'vitest'
import { TARGETS, moduleName, packageName } from '../../scripts/package/targets.mjs'
import { GLIBC_MIN, nativeFileNames, noModuleText, platformPackage, type Host } from '../../src/native/platform.js'

test('the loader and the packaging scripts agree on names', () => {
  for (const target of TARGETS) {
    const [platform = '', arch = ''] = target.name.split('-')
    expect(platformPackage(platform, arch)).toBe(packageName(target))
    expect(nativeFileNames(platform, arch)[0]).toBe(moduleName(target))
    expect(target.glibc).toBe(platform === 'linux' ? GLIBC_MIN : null)
  }
  expect(platformPackage('win32', 'x64')).toBeNull()
})

const check = (host: Partial<Host>, text: RegExp): void =>
  expect(
    noModuleText({ platform: 'linux', arch: 'x64', glibc: '2.36', clone: null, ...host }, '1.2.3', ['the reason']),
  ).toMatch(text)

test('a failure names the attempts, and the command that helps on this system', () => {
  check(
    {},
    /^the native core can not be loaded on linux-x64: the reason\. Install it with: npm install @nereid\/linux-x64-gnu@1\.2\.3 /,
  )
  check({ platform: 'darwin', arch: 'arm64', glibc: null }, /npm install @nereid\/darwin-arm64@1\.2\.3 /)
})

test('in a clone, the advice is the build command', () => {
  const { platform, arch } = process
  expect(
    noModuleText({ platform, arch, glibc: '2.36', clone: '/home/me/nereid/' }, '1.2.3', ['this clone is not built']),
  ).toBe(
    `the native core can not be loaded on ${platform}-${arch}: this clone is not built. Build it with: npm ` +
      'start (in /home/me/nereid/)',
  )
})

test('without glibc, or with an old one, the advice names suitable images', () => {
  check({ glibc: null }, /no glibc .*musl.* ONNX Runtime .*node:22-slim/)
  check({ glibc: '2.17' }, /glibc 2\.17, and 2\.28 or newer is needed: .*node:22-slim/)
  check({ glibc: '2.9' }, /glibc 2\.9, and 2\.28 or newer/)
  check({ glibc: '2.28' }, /npm install/)
  check({ glibc: '3.0' }, /npm install/)
})

test('without a package for the platform, the advice lists the existing ones', () => {
  check({ platform: 'win32', glibc: null }, /There are packages for linux-x64, linux-arm64, darwin-arm64; .*npm start/)
  check({ arch: 's390x' }, /There are packages for /)
})
