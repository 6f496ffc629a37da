/** The platforms that have a package. A test compares src/native/platform.ts with this table. */

/**
 * - `name`: for `--target=`, made of Node's names of platform and architecture.
 * - `suffix`: of the package's and of the module's name.
 * - `triple`: Rust's name. `zig`: the same with the oldest C library that the module supports.
 * - `library`: libonnxruntime in onnxruntime-node.
 */
export const TARGETS = [
  {
    name: 'linux-x64',
    suffix: 'linux-x64-gnu',
    triple: 'x86_64-unknown-linux-gnu',
    zig: 'x86_64-unknown-linux-gnu.2.28',
    glibc: '2.28',
    built: 'libnereid_node.so',
    rustFlags: [],
    library: 'linux/x64/libonnxruntime.so.1',
    manifest: { os: ['linux'], cpu: ['x64'], libc: ['glibc'] },
  },
  {
    name: 'linux-arm64',
    suffix: 'linux-arm64-gnu',
    triple: 'aarch64-unknown-linux-gnu',
    zig: 'aarch64-unknown-linux-gnu.2.28',
    glibc: '2.28',
    built: 'libnereid_node.so',
    rustFlags: [],
    library: 'linux/arm64/libonnxruntime.so.1',
    manifest: { os: ['linux'], cpu: ['arm64'], libc: ['glibc'] },
  },
  {
    name: 'darwin-arm64',
    suffix: 'darwin-arm64',
    triple: 'aarch64-apple-darwin',
    zig: 'aarch64-apple-darwin',
    glibc: null,
    built: 'libnereid_node.dylib',
    // Otherwise the library's name is the path at which it was linked.
    rustFlags: ['-Clink-arg=-Wl,-install_name,@rpath/nereid.darwin-arm64.node'],
    library: 'darwin/arm64/libonnxruntime.1.dylib',
    manifest: { os: ['darwin'], cpu: ['arm64'] },
  },
]

/** Crates whose files are beside the module, with the systems where they are; the first file is a program. */
const COMPANIONS = [
  // The load generator of `nereid bench`.
  { package: 'nereid-load', files: ['nereid-load'], os: ['linux', 'darwin'] },
  // The program that runs libraries of backends written for Triton, and the library that those are linked with.
  { package: 'nereid-backend-host', files: ['nereid-backend-host', 'libtritonserver.so'], os: ['linux'] },
]

/** The crates of a system, by Node's name of it, and their files. */
export const companions = (os) => COMPANIONS.filter((one) => one.os.includes(os))
export const companionFiles = (os) => companions(os).flatMap(({ files }) => files)

/** Whether a file of theirs is a program. */
export const isProgram = (name) => COMPANIONS.some(({ files }) => files[0] === name)

/** Node's name of a target's system. */
export const systemName = (target) => target.manifest.os[0]

/** Rust's and pip's name of a target's processor. */
export const machineName = (target) => target.triple.split('-')[0]

export const packageName = (target) => `@nereid/${target.suffix}`
export const moduleName = (target) => `nereid.${target.suffix}.node`

/** The target of this machine; undefined if it has no package. */
export const ownTarget = () => TARGETS.find((one) => one.name === `${process.platform}-${process.arch}`)
