/**
 * Parameters of the backend `image`: the steps from a picture to the tensor of a network, by the files of the model, or
 * as the framework that the network seems to come from has them. Pure.
 */

import type { Fields, Size, Ultralytics } from './vision_files.js'
import type { Network, Task } from './vision_network.js'

/** A parameter of a configuration, with its origin as a comment. */
export interface Setting {
  key: string
  value: string
  why?: string
}

export interface Steps {
  settings: Setting[]
  /** Assumptions, each with what to change if it is wrong. */
  guesses: string[]
  /** Steps that the files ask for and the backend does not have. */
  missing: string[]
}

/** Mean and standard deviation of the colours of ImageNet. */
const IMAGENET = { mean: '0.485, 0.456, 0.406', std: '0.229, 0.224, 0.225' }
const CROP = 224
/** Shorter side before the crop: 256 for 224, in torchvision. */
const SHORTEST_PER_CROP = 256 / CROP
const DETECT = 640

/** Families whose size, as a number, is the shorter side; others are resized to a square. */
const SHORTEST_FAMILIES = /clip|convnext|bit|levit|mobilenet|mobilevit|poolformer|detr|yolos/i
/** Families that resize to a larger picture before the crop, with the share that the crop has of it. */
const CROP_SHARES: readonly (readonly [family: RegExp, share: number])[] = [
  [/convnext/i, CROP / 256],
  [/poolformer/i, 0.9],
]
/** ConvNext crops only pictures that are smaller. */
const CONVNEXT_EXACT = 384
/** Filters of Pillow by number, and what stands in for those that are missing. */
const FILTERS = ['bilinear', 'lanczos', 'bilinear', 'bicubic', 'area', 'bilinear']
const FILTER_NAMES = ['nearest', 'Lanczos', 'bilinear', 'bicubic', 'box', 'Hamming']
const EXACT_FILTERS = [1, 2, 3, 4]
/** Fields without an effect on pixels, beside those that are read. */
const HARMLESS = new Set([
  'image_processor_type',
  'feature_extractor_type',
  'processor_class',
  '_valid_processor_keys',
  'do_convert_rgb',
  'do_convert_annotations',
  'format',
  'auto_map',
  'data_format',
  'input_data_format',
  'return_tensors',
  'device',
  'disable_grouping',
  'default_to_square',
])

/** The picture is as large as the network wants; -1 is any size. */
const target = ({ width, height }: Network): string | null => (width > 0 && height > 0 ? `${width}x${height}` : null)

const isByte = ({ input }: Network): boolean => input.datatype === 'TYPE_UINT8'

/** Parameters that the tensor of the network decides. */
function ofTensor({ isChannelsLast, channels }: Network): Setting[] {
  return [
    ...(channels === 1 ? [{ key: 'color', value: 'grey', why: 'The network has one channel.' }] : []),
    ...(isChannelsLast ? [{ key: 'layout', value: 'nhwc', why: 'The channels are last.' }] : []),
  ]
}

export function stepsOf(
  task: Task,
  network: Network,
  { preprocessor, ultralytics }: { preprocessor: Fields | null; ultralytics: Ultralytics | null },
): Steps {
  const steps =
    preprocessor !== null
      ? ofPreprocessor(preprocessor, network)
      : ultralytics !== null
        ? ofUltralytics(task, network, ultralytics)
        : task === 'classify'
          ? ofTorchvision(network)
          : ofLayout(network)
  return { ...steps, settings: [...steps.settings, ...ofTensor(network)] }
}

/** Scale, mean and standard deviation; none for a network of bytes, which does this itself. */
function normalization(network: Network, why: string, colours: { mean?: string; std?: string } = {}): Setting[] {
  if (isByte(network)) return []
  const { mean, std } = colours
  return [
    { key: 'scale', value: '1/255', why },
    ...(mean === undefined ? [] : [{ key: 'mean', value: mean }]),
    ...(std === undefined ? [] : [{ key: 'std', value: std }]),
  ]
}

/** Ultralytics exports: as its commands predict. */
function ofUltralytics(task: Task, network: Network, { size, stride }: Ultralytics): Steps {
  const why = 'The steps of Ultralytics, whose metadata are in the file.'
  const side = size === null ? null : `${size.width}x${size.height}`
  const to = target(network) ?? side ?? `${DETECT}x${DETECT}`
  const guesses =
    target(network) === null && side === null
      ? [`The file takes pictures of any size and names none: ${to} is the usual one. Change "letterbox".`]
      : []
  if (task === 'classify') {
    const [width = CROP, height = CROP] = to.split('x').map(Number)
    return {
      settings: [
        { key: 'resize', value: `shortest:${Math.max(width, height)}`, why },
        { key: 'center_crop', value: to },
        ...normalization(network, 'Pixels from 0 to 1.'),
      ],
      guesses,
      missing: [],
    }
  }
  const isAnySize = target(network) === null && stride !== null
  return {
    settings: [
      {
        key: 'letterbox',
        value: to,
        why: isAnySize
          ? `${why} The file takes any size: with the parameter stride "${stride}", borders become smaller, and ` +
            'pictures of one request need the same aspect ratio.'
          : why,
      },
      { key: 'antialias', value: 'false', why: 'OpenCV resizes without antialiasing.' },
      ...normalization(network, 'Pixels from 0 to 1.'),
    ],
    guesses,
    missing: [],
  }
}

/** Classification networks of torchvision. */
function ofTorchvision(network: Network): Steps {
  const { width, height } = network
  const crop = target(network) ?? `${CROP}x${CROP}`
  const shortest = Math.round(SHORTEST_PER_CROP * (target(network) === null ? CROP : Math.max(width, height)))
  const why = 'A guess: the steps of torchvision for ImageNet.'
  const byte = isByte(network) ? ' The network takes bytes, so colours are not normalized.' : ''
  return {
    settings: [
      { key: 'resize', value: `shortest:${shortest}`, why: `${why} Bilinear, with antialiasing.` },
      { key: 'center_crop', value: crop },
      ...normalization(network, why, network.channels === 3 ? IMAGENET : {}),
    ],
    guesses: [
      `How pictures are prepared is not in the files: here resized to a shorter side of ${shortest}, cropped to ` +
        `${crop}${isByte(network) ? '' : `, normalized as for ImageNet`}, as torchvision does.${byte} Compare ` +
        'with the code that trained the network, and change "resize", "center_crop", "scale", "mean" and "std".',
    ],
    missing: [],
  }
}

/** Detection networks without files that say more. */
function ofLayout(network: Network): Steps {
  const { layout } = network
  const size = target(network)
  const any = `${DETECT}x${DETECT}`
  const change = 'Compare with the code that trained the network.'
  const why = 'A guess by the layout of the outputs.'
  if (layout === 'torchvision') {
    const resize = size === null ? [] : [{ key: 'resize', value: size, why: 'The file takes this size only.' }]
    return {
      settings: [...resize, ...normalization(network, `${why} The network normalizes colours itself.`)],
      guesses: [`Pixels are divided by 255 and not normalized, as networks of torchvision want them. ${change}`],
      missing: [],
    }
  }
  if (layout === 'detr' || layout === 'rtdetr') {
    const to = size ?? (layout === 'detr' ? 'shortest:800' : any)
    const colours = layout === 'detr' ? IMAGENET : {}
    return {
      settings: [{ key: 'resize', value: to, why }, ...normalization(network, why, colours)],
      guesses: [
        `Pictures are resized to ${to} without borders${layout === 'detr' ? ' and normalized as for ImageNet' : ''}, ` +
          `as ${layout} does in transformers. ${change} Change "resize", "scale", "mean" and "std".`,
      ],
      missing: [],
    }
  }
  const isCenter = layout === 'centernet' || layout === 'centerface'
  const scale = isCenter ? { key: 'scale', value: '1', why: `${why} Pixels from 0 to 255.` } : null
  return {
    settings: [
      { key: 'letterbox', value: size ?? any, why },
      { key: 'antialias', value: 'false', why: 'OpenCV resizes without antialiasing.' },
      ...(scale === null || isByte(network) ? normalization(network, `${why} Pixels from 0 to 1.`) : [scale]),
    ],
    guesses: [
      `Pictures are fitted into ${size ?? any} with grey borders, in RGB, ` +
        `${isByte(network) ? 'as bytes' : isCenter ? 'from 0 to 255' : 'from 0 to 1'}. ${change} Change "letterbox", ` +
        '"letterbox_color", "scale" and "color" (bgr).',
    ],
    missing: [],
  }
}

/** The processors of transformers. */
function ofPreprocessor(fields: Fields, network: Network): Steps {
  const [guesses, missing]: [string[], string[]] = [[], []]
  const family = fields.text('image_processor_type') ?? fields.text('feature_extractor_type') ?? ''
  const name = fields.file.split('/').at(-1) ?? fields.file
  const size = fields.size('size', 'max_size')
  const cropSize = fields.size('crop_size', '')
  const cropShare = fields.number('crop_pct') ?? CROP_SHARES.find(([of]) => of.test(family))?.[1] ?? null
  const resized =
    fields.flag('do_resize', size !== undefined) && size !== undefined
      ? resizeOf(family, size, cropSize, cropShare)
      : { resize: null, crop: null, size: null }
  const asked = fields.flag('do_center_crop', cropSize !== undefined) ? sizeText(cropSize) : null
  let { resize } = resized
  let crop = asked ?? resized.crop
  const to = target(network)
  if ('longest' in resized && resized.longest !== undefined && to === null)
    missing.push(
      `${name}: the longer side is limited to ${resized.longest} there, and not here: narrow pictures become larger`,
    )
  const made = crop ?? resized.size
  if (to !== null && made !== to) {
    guesses.push(
      made === null
        ? `The file takes pictures of ${to} only, and ${name} keeps their aspect ratio: they are resized to ${to}.`
        : `The file takes pictures of ${to}, and ${name} makes ${made}: ${to} is taken.`,
    )
    if (crop === null) resize = to
    else crop = to
  }
  const filter = fields.filter('resample') ?? 2
  if (resize !== null && !fields.has('resample'))
    guesses.push(`${name} names no filter: bilinear is taken. Change "interpolation".`)
  if (resize !== null && !EXACT_FILTERS.includes(filter))
    missing.push(`${name}: the filter ${FILTER_NAMES[filter]}; "interpolation" is ${FILTERS[filter]} instead`)
  const from = (key: string): string => `${name}: ${key}.`
  const settings: Setting[] = []
  if (resize !== null) {
    settings.push({ key: 'resize', value: resize, why: from(cropShare === null ? 'size' : 'size, crop_pct') })
    settings.push({ key: 'interpolation', value: FILTERS[filter] ?? 'bilinear', why: from('resample') })
  }
  if (crop !== null)
    settings.push({ key: 'center_crop', value: crop, why: from(asked === null ? 'size' : 'crop_size') })
  settings.push(...coloursOf(fields, network, from, missing))
  if (fields.flag('do_flip_channel_order', false))
    settings.push({ key: 'color', value: 'bgr', why: from('do_flip_channel_order') })
  if (fields.flag('do_pad', false))
    missing.push(`${name}: do_pad, which makes pictures of one request equally large; here they must have one size`)
  for (const key of ['pad_size', 'size_divisor', 'pad_and_return_pixel_mask']) fields.has(key)
  for (const key of fields.others)
    if (!HARMLESS.has(key) && (!key.startsWith('do_') || fields.flag(key, false)))
      missing.push(`${name}: ${JSON.stringify(key.slice(0, 60))} is not read`)
  return { settings, guesses, missing }
}

const sizeText = (size: Size | undefined): string | null => {
  if (size === undefined) return null
  if ('width' in size) return `${size.width}x${size.height}`
  if ('widthMax' in size) return `${size.widthMax}x${size.heightMax}`
  const side = 'side' in size ? size.side : size.shortest
  return `${side}x${side}`
}

interface Resize {
  resize: string | null
  /** Size of the crop that belongs to the resize. */
  crop: string | null
  /** Size of the result, if it is always the same. */
  size: string | null
  longest?: number
}

function resizeOf(family: string, size: Size, crop: Size | undefined, share: number | null): Resize {
  const exact = (to: string): Resize => ({ resize: to, crop: null, size: to })
  if ('width' in size) return exact(sizeText(size) ?? '')
  if ('widthMax' in size) return { resize: `within:${sizeText(size) ?? ''}`, crop: null, size: null }
  const side = 'side' in size ? size.side : size.shortest
  if ('side' in size && !SHORTEST_FAMILIES.test(family)) return exact(`${side}x${side}`)
  const isConvNext = /convnext/i.test(family)
  if (isConvNext && side >= CONVNEXT_EXACT) return exact(`${side}x${side}`)
  if (share !== null) {
    const own = isConvNext ? { crop: `${side}x${side}` } : { crop: sizeText(crop) }
    return { resize: `shortest:${Math.floor(side / share)}`, ...own, size: null }
  }
  if (/levit/i.test(family))
    return { resize: `shortest:${Math.floor(SHORTEST_PER_CROP * side)}`, crop: null, size: null }
  const longest = 'shortest' in size && size.longest !== null ? { longest: size.longest } : {}
  return { resize: `shortest:${side}`, crop: null, size: null, ...longest }
}

/** Scale, mean and standard deviation. */
function coloursOf(fields: Fields, network: Network, from: (key: string) => string, missing: string[]): Setting[] {
  const factor = fields.number('rescale_factor') ?? 1 / 255
  const isRescaled = fields.flag('do_rescale', true)
  const [mean, std] = [fields.channels('image_mean'), fields.channels('image_std')]
  const isNormalized = fields.flag('do_normalize', mean !== undefined && std !== undefined)
  if (isByte(network)) {
    missing.push('colours are not normalized, because the network takes bytes (UINT8)')
    return []
  }
  const scale = !isRescaled ? '1' : Math.abs(factor * 255 - 1) < 1e-6 ? '1/255' : String(factor)
  const settings: Setting[] = [
    { key: 'scale', value: scale, why: from(isRescaled ? 'rescale_factor, or its default' : 'do_rescale is false') },
  ]
  if (!isNormalized) return settings
  if (mean !== undefined) settings.push({ key: 'mean', value: mean.join(', '), why: from('image_mean') })
  if (std !== undefined) settings.push({ key: 'std', value: std.join(', '), why: from('image_std') })
  return settings
}
