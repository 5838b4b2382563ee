import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';

/** Least number of places; few bars are not drawn as wide as the page. */
export const PLACES_MIN = 8;
/** Width of a bar in its place. */
const BAR = 0.8;
/** Number of titles below the bars. */
const TITLES_MAX = 6;
/** Height of the lowest value that a logarithmic axis shows. */
const LOGARITHMIC_MIN = 0.1;

/** One kind of counted things; `tone` is its colour in style/. */
export interface Series {
  readonly name: string;
  readonly tone: string;
}

/** Counts at one place of the horizontal axis, in the order of the series. */
export interface Point {
  readonly title: string;
  readonly values: readonly number[];
}

interface ChartProps {
  readonly label: string;
  readonly unit: string;
  readonly series: readonly Series[];
  readonly points: readonly Point[];
  /** Number of places while there are fewer points, which then stand at the right end. */
  readonly placesMin?: number;
  /** For times, so that slow ones do not hide quick ones; then each point has one value. */
  readonly logarithmic?: boolean;
  /** Shows what is behind a series, or behind its part of one bar; undefined = nothing more is known. */
  readonly behind?: (series: number, point?: number) => (() => void) | undefined;
}

/** Stacked bars with axes and a legend, and with the numbers as a list for users who cannot see the bars. */
export function Bars(props: ChartProps) {
  const { label, unit, series, points, behind } = props;
  const max = Math.max(1, ...points.map((point) => sumOf(point)));
  const visible = series.flatMap((each, i) =>
    points.some(({ values }) => (values[i] ?? 0) > 0) ? [{ ...each, onOpen: behind?.(i) }] : [],
  );
  return (
    <figure>
      <figcaption>
        <strong>
          {label}
          {unit && `, ${unit}`}
        </strong>
        <Legend of={visible} />
      </figcaption>
      <Plot
        {...props}
        max={max}
        name={`${label}: ${points.length} bars, the highest ${amountText(max, unit)}`}
      />
      <details>
        <summary>As numbers</summary>
        <ul>
          {points.map(
            (point, at) =>
              sumOf(point) > 0 && (
                <li key={point.title}>
                  {point.title}:{' '}
                  {partsOf(props, point).map(({ text, series }, i) => (
                    <>
                      {i > 0 && ', '}
                      <Opening onOpen={behind?.(series, at)}>{text}</Opening>
                    </>
                  ))}
                </li>
              ),
          )}
        </ul>
      </details>
    </figure>
  );
}

/** The drawing. Its bars are stretched to the width of the page, its texts are not. */
function Plot(props: ChartProps & { max: number; name: string }) {
  const { name, series, points, placesMin = PLACES_MIN, logarithmic = false, behind } = props;
  const [pointed, setPointed] = useState<number>();
  const steps = logarithmic ? powersTo(props.max) : stepsTo(props.max);
  const top = logarithmic ? (steps.at(-1) ?? 1) : 1.05 * props.max;
  const heightOf = (value: number) =>
    logarithmic
      ? Math.max(0, Math.log(value / LOGARITHMIC_MIN) / Math.log(top / LOGARITHMIC_MIN))
      : value / top;
  const places = Math.max(placesMin, points.length);
  // The newest point is at the right end.
  const offset = places - points.length;
  const every = Math.ceil(places / TITLES_MAX);
  const hint = pointed === undefined ? undefined : points[pointed];
  return (
    <div
      class="chart"
      role="img"
      aria-label={name}
      onMouseMove={({ target }) => setPointed(placeOf(target))}
      onMouseLeave={() => setPointed(undefined)}
    >
      <ol class="amounts">
        {steps.map((step) => (
          <li key={step} style={{ bottom: `${100 * heightOf(step)}%` }}>
            {step.toLocaleString()}
          </li>
        ))}
      </ol>
      <svg viewBox={`0 0 ${places} 1`} preserveAspectRatio="none" aria-hidden="true">
        {points.map((point, at) => (
          <g key={point.title} data-at={at}>
            <rect class="place" x={offset + at} width="1" height="1" />
            {series.map(({ tone }, i) => {
              const below = sumOf(point, i);
              const from = below === 0 ? 0 : heightOf(below);
              const height = (point.values[i] ?? 0) === 0 ? 0 : heightOf(sumOf(point, i + 1)) - from;
              const open = height > 0 ? behind?.(i, at) : undefined;
              return (
                height > 0 && (
                  <rect
                    key={tone}
                    class={open ? `${tone} opens` : tone}
                    x={offset + at + (1 - BAR) / 2}
                    y={1 - from - height}
                    width={BAR}
                    height={height}
                    {...(open ? { onClick: open } : {})}
                  />
                )
              );
            })}
          </g>
        ))}
      </svg>
      <ol class="titles">
        {points.map(
          ({ title }, at) =>
            (points.length - 1 - at) % every === 0 && (
              <li key={title} style={{ left: `${(100 * (offset + at + 0.5)) / places}%` }}>
                {title}
              </li>
            ),
        )}
      </ol>
      {hint && (
        <div class="hint">
          {hint.title}:{' '}
          {partsOf(props, hint)
            .map(({ text }) => text)
            .join(', ') || 'none'}
        </div>
      )}
    </div>
  );
}

/** The number of the point in whose place something is. */
const placeOf = (target: EventTarget | null) =>
  Number((target as Element).closest<SVGElement>('[data-at]')?.dataset['at'] ?? Number.NaN);

/** The sum of the first values of a point. */
const sumOf = ({ values }: Point, count = values.length) =>
  values.slice(0, count).reduce((sum, value) => sum + value, 0);

/** At most five round amounts up to a maximum: counts have no fractions. */
function stepsTo(max: number): number[] {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(max / 4)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => max / each <= 5) ?? max;
  return Array.from({ length: Math.floor(max / step) + 1 }, (_, i) => i * step);
}

const powersTo = (max: number) =>
  Array.from({ length: Math.max(2, Math.ceil(Math.log10(max)) + 1) }, (_, i) => 10 ** i);

/** The names of the series with their colours. */
export function Legend({ of }: { of: readonly (Series & { onOpen?: (() => void) | undefined })[] }) {
  return (
    <span class="legend">
      {of.map(({ name, tone, onOpen }) => (
        <Opening key={name} onOpen={onOpen}>
          <svg viewBox="0 0 10 10" aria-hidden="true">
            <rect class={tone} width="10" height="10" rx="2" />
          </svg>
          {name}
        </Opening>
      ))}
    </span>
  );
}

/** A text; a button if there is something behind it. */
function Opening(props: { onOpen: (() => void) | undefined; children: ComponentChildren }) {
  const { onOpen, children } = props;
  if (!onOpen) return <span>{children}</span>;
  return (
    <button type="button" class="link" onClick={onOpen}>
      {children}
    </button>
  );
}

const amountText = (value: number, unit: string) => `${value.toLocaleString()} ${unit}`.trim();

const partsOf = ({ series, unit }: ChartProps, { values }: Point) =>
  values.flatMap((value, i) =>
    value > 0 ? [{ series: i, text: `${amountText(value, unit)} ${series[i]?.name ?? ''}` }] : [],
  );
