import { useState } from 'preact/hooks';
import { namesOf, slugsOf } from './entered-values.ts';

/**
 * An input for several values, which suggests those of a catalogue and takes others too. Enter, a comma and leaving the input add
 * what was typed; Backspace in the empty input removes the last. A form gets all of them as one text.
 * @param props.separator stands between the values in the form's text
 * @param props.isClosed true if only values of the catalogue exist: a part of one is enough
 */
export function Picker(props: {
  id: string;
  name: string;
  values: readonly string[];
  options: readonly string[];
  separator: ' ' | ', ';
  isClosed?: boolean;
}) {
  const { id, name, options, separator } = props;
  const [values, setValues] = useState(props.values);
  const [text, setText] = useState('');
  // A catalogue that could not be loaded knows of nothing.
  const isClosed = props.isClosed === true && options.length > 0;
  const add = (typed: string) => {
    const all = separator === ' ' ? slugsOf(typed) : namesOf(typed);
    const matches = all.map((each) => (isClosed ? optionLike(each, options) : each));
    setValues([...new Set([...values, ...matches.filter((each) => each !== undefined)])]);
    setText(all.filter((_, i) => matches[i] === undefined).join(', '));
  };
  const key = (event: KeyboardEvent) => {
    const isEnd = event.key === 'Enter' || event.key === ',' || (event.key === ' ' && separator === ' ');
    if (isEnd && text.trim() !== '') {
      event.preventDefault();
      add(text);
    } else if (event.key === 'Backspace' && text === '') setValues(values.slice(0, -1));
  };
  return (
    <div class="picker">
      {values.map((value) => (
        <span key={value} class="chip">
          <bdi>{value}</bdi>
          <button
            type="button"
            aria-label={`Remove ${value}`}
            onClick={() => setValues(values.filter((each) => each !== value))}
          >
            ×
          </button>
        </span>
      ))}
      <input
        id={id}
        list={`${id}-options`}
        value={text}
        autocomplete="off"
        spellcheck={false}
        onKeyDown={key}
        onBlur={() => add(text)}
        onInput={({ currentTarget: { value } }) => (options.includes(value) ? add(value) : setText(value))}
      />
      {isClosed && text !== '' && !options.some((option) => isLike(text, option)) && (
        <span class="error" role="status">
          none is named {text}
        </span>
      )}
      <datalist id={`${id}-options`}>
        {options
          .filter((option) => !values.includes(option))
          .map((option) => (
            <option key={option} value={option} />
          ))}
      </datalist>
      <input type="hidden" name={name} value={[...values, text.trim()].filter(Boolean).join(separator)} />
    </div>
  );
}

const isLike = (part: string, option: string) => option.toLowerCase().startsWith(part.trim().toLowerCase());

/** The option that is meant by a text or by its beginning; undefined if none is, or several are. */
function optionLike(text: string, options: readonly string[]): string | undefined {
  const [first, ...others] = options.filter((option) => isLike(text, option));
  if (options.includes(text)) return text;
  return others.length === 0 ? first : options.find((option) => option.toLowerCase() === text.toLowerCase());
}
