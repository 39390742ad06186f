// Which colour lies over a photo for each weight: the styles and colour maps of styles.py.

export const LEVELS = 1024; // of u, in a table of colours

// How maps are drawn, for all photos of a page. null = the style's default.
export class View {
  constructor(data) {
    this.data = data;
    this.colourMaps = new Map(Object.entries(data.colour_maps).map(([name, text]) => [name, rgbOf(text)]));
    this.setStyle(data.initial.style);
    this.cmap = data.initial.cmap;
    if (data.initial.smooth !== null) this.smooth = data.initial.smooth;
    if (data.initial.opacity !== null) this.opacity = data.initial.opacity;
  }

  setStyle(name) {
    this.name = name;
    this.style = this.data.styles[name];
    this.smooth = this.style.smooth;
    this.opacity = this.style.opacity;
  }

  get saturation() {
    return this.style.saturation;
  }

  get unseen() {
    return pixel([0, 0, 0], this.opacity);
  }

  get hatch() {
    return pixel([102, 102, 102], this.opacity);
  }

  // The deviation of the Gaussian that blurs maps, in cells; 0 for none.
  get blur() {
    return this.smooth && this.style.blurred ? this.data.deviation : 0;
  }

  // Low, high and mean of the colours of a map.
  scale(map) {
    return this.blur ? map.blurred : map.drawn;
  }

  // Canvas pixels (little-endian RGBA) for u from 0 to 1, between the low and the high weight of a map.
  table(map) {
    const key = [this.name, this.opacity, this.cmap].join();
    if (map.tableKey !== key) {
      map.table = Uint32Array.from({ length: LEVELS }, (_, level) => this.colour(map, level / (LEVELS - 1)));
      map.tableKey = key;
    }
    return map.table;
  }

  colour(map, u) {
    const { low, high, mean, signed } = map;
    const weight = low + u * (high - low);
    const span = high - mean;
    const excess = span > 1e-6 * Math.abs(high) ? Math.min(1, Math.max(0, (weight - mean) / span)) : 0;
    const own = this.cmap === null ? null : this.colourMaps.get(this.cmap);
    const value = signed ? Math.sqrt(Math.abs(weight) / high) : this.value(u, excess);
    const twoColours = weight < 0 ? this.data.below : this.data.above;
    if (this.name === "heat") {
      const colour = signed ? (own ? mix(own, u) : twoColours) : mix(own || rgbOf(this.data.heat), excess);
      return pixel(colour, this.opacity * value);
    }
    if (own) return pixel(mix(own, u), this.opacity);
    const tint = signed ? this.data.signed_tint : this.style.tint;
    const share = Math.min(tint, this.opacity) * value;
    const alpha = this.opacity * (1 - value) + share;
    const colour = signed ? twoColours : this.style.colour;
    return pixel(colour.map((part) => (alpha > 0 ? (part * share) / alpha : 0)), alpha);
  }

  value(u, excess) {
    const k = this.data.ease;
    return { even: ((1 + k) * excess) / (excess + k), root: Math.sqrt(u), linear: u }[this.style.level];
  }
}

function pixel(colour, alpha) {
  const [r, g, b] = colour.map(Math.round);
  return ((Math.round(255 * alpha) << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

const decodedColours = new Map();

// Bytes R, G, B, R, G, B ... of a colour map.
function rgbOf(text) {
  if (!decodedColours.has(text)) {
    decodedColours.set(text, Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0)));
  }
  return decodedColours.get(text);
}

// The colour at t in [0, 1] of a colour map.
function mix(colours, t) {
  const last = colours.length / 3 - 1;
  const before = Math.min(last - 1, Math.floor(t * last));
  const part = t * last - before;
  return [0, 1, 2].map((channel) => {
    const at = 3 * before + channel;
    return colours[at] + (colours[at + 3] - colours[at]) * part;
  });
}
