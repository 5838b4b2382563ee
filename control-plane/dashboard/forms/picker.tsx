import { useState } from 'preact/hooks';
import { namesOf, slugsOf } from './entered-values.ts';

/**
 * An input for several values, which suggests those of a catalogue and takes others too. Enter, a comma and leaving the input add
 * what was typed; Backspace in the empty input removes the last. A form gets all of them as one text.
 * @param props.separator stands between the values in the form's text
 */
export function Picker(props: {
  id: string;
  name: string;
  values: readonly string[];
  options: readonly string[];
  separator: ' ' | ', ';
}) {
  const { id, name, options, separator } = props;
  const [values, setValues] = useState(props.values);
  const [text, setText] = useState('');
  const add = (typed: string) => {
    const additions = separator === ' ' ? slugsOf(typed) : namesOf(typed);
    setValues([...new Set([...values, ...additions])]);
    setText('');
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
