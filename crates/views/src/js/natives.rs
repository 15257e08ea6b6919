//! What functions find in their context beside ECMAScript.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rquickjs::{
    Ctx, Exception, Function, Persistent, Result, Value,
    prelude::{Opt, Rest},
};

use super::{EMITTED_BYTES_MAX, KEY_BYTES_MAX, LOG_CHARACTERS_MAX, LOGS_MAX, ROWS_MAX, Row};
use crate::canonical;

/// Functions that are easier said in JavaScript.
const PRELUDE: &str = "
function sum(values) {
    var total = 0;
    for (var at = 0; at < values.length; at++) { total += values[at]; }
    return total;
}
function dateToArray(date) {
    var day = date.getUTCDate ? date : new Date(date);
    if (!isFinite(day)) { return null; }
    return [day.getUTCFullYear(), day.getUTCMonth() + 1, day.getUTCDate(),
        day.getUTCHours(), day.getUTCMinutes(), day.getUTCSeconds()];
}
";

/// Says whether `JSON.stringify` does to plain values what it always does.
const PLAIN: &str = "(function () {
    var all = [Object, Array, String, Number, Boolean].map(function (kind) { return kind.prototype; });
    var a = all[0], b = all[1], c = all[2], d = all[3], e = all[4];
    return function () {
        return a.toJSON === undefined && b.toJSON === undefined && c.toJSON === undefined &&
            d.toJSON === undefined && e.toJSON === undefined;
    };
})()";

/// A document of which functions see some members only, although they may emit it whole.
#[derive(Clone)]
pub(super) struct Partial {
    /// The document that functions were given.
    pub(super) given: Persistent<Value<'static>>,
    /// Its text.
    pub(super) given_text: Rc<str>,
    /// The text of the whole document.
    pub(super) whole: Rc<str>,
}

/// What the functions of a context emitted and logged for one document.
#[derive(Default)]
pub(super) struct Emission {
    rows: RefCell<Vec<Row>>,
    bytes: Cell<usize>,
    logs: RefCell<Vec<String>>,
    partial: RefCell<Option<Partial>>,
    plain: RefCell<Option<Persistent<Function<'static>>>>,
}

impl Emission {
    /// Begins a document.
    pub(super) fn begin(&self, partial: Option<Partial>) {
        *self.partial.borrow_mut() = partial;
        self.logs.borrow_mut().clear();
    }

    /// Ends a document, of which nothing is held any longer.
    pub(super) fn end(&self) -> Vec<String> {
        self.partial.borrow_mut().take();
        self.rows.borrow_mut().clear();
        std::mem::take(&mut *self.logs.borrow_mut())
    }

    /// Gives what was emitted since the last time.
    pub(super) fn take_rows(&self) -> Vec<Row> {
        self.bytes.set(0);
        std::mem::take(&mut *self.rows.borrow_mut())
    }

    /// Lets go of everything that belongs to a context.
    pub(super) fn forget(&self) {
        self.end();
        self.plain.borrow_mut().take();
    }

    fn emit<'js>(&self, ctx: &Ctx<'js>, key: Value<'js>, value: Value<'js>) -> Result<()> {
        let key = stringify(ctx, key)?;
        let value = match self.whole_document(ctx, &value)? {
            Some(text) => text,
            None => stringify(ctx, value)?,
        };
        if key.len() >= KEY_BYTES_MAX {
            return Err(Exception::throw_message(ctx, &format!("too long key emitted: {} bytes", key.len())));
        }
        let bytes = self.bytes.get() + key.len() + value.len();
        self.bytes.set(bytes);
        if bytes > EMITTED_BYTES_MAX {
            return Err(Exception::throw_message(ctx, &format!("too much data emitted: {bytes} bytes")));
        }
        let mut rows = self.rows.borrow_mut();
        if rows.len() >= ROWS_MAX {
            return Err(Exception::throw_message(
                ctx,
                &format!("too many keys emitted, maximum allowed is {ROWS_MAX}"),
            ));
        }
        rows.push(Row { key, value });
        Ok(())
    }

    /// The text of the document, where that is what is emitted and functions know a part of it only.
    ///
    /// As long as that part is what it was, the text comes from what is stored. Otherwise the changes are made to the whole
    /// document as well.
    fn whole_document<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Option<String>> {
        let Some(partial) = self.partial.borrow().clone() else { return Ok(None) };
        let given = partial.given.restore(ctx)?;
        if given != *value {
            return Ok(None);
        }
        let plain = self.plain.borrow().clone();
        let is_plain = match plain {
            Some(plain) => plain.restore(ctx)?.call::<_, bool>(())?,
            None => false,
        };
        if is_plain
            && let Some(given_text) = canonical::stringified(&partial.given_text)
            && stringify(ctx, given.clone())? == given_text
            && let Some(whole) = canonical::stringified(&partial.whole)
        {
            return Ok(Some(whole));
        }
        let whole = ctx.json_parse(partial.whole.as_bytes())?;
        if let (Some(whole), Some(given)) = (whole.as_object(), given.as_object()) {
            for member in given.props::<String, Value<'js>>() {
                let (name, value) = member?;
                whole.set(name, value)?;
            }
        }
        stringify(ctx, whole).map(Some)
    }

    fn log<'js>(&self, ctx: &Ctx<'js>, text: Option<&Value<'js>>) -> Result<()> {
        let Some(text) = text.and_then(Value::as_string) else {
            return Err(Exception::throw_message(ctx, "Error while logging:Log value is not a string"));
        };
        let text = text.to_string()?.chars().take(LOG_CHARACTERS_MAX).collect();
        let mut logs = self.logs.borrow_mut();
        if logs.len() < LOGS_MAX {
            logs.push(text);
        }
        Ok(())
    }
}

/// The text that `JSON.stringify` gives, and `null` where it gives none.
pub(super) fn stringify<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<String> {
    match ctx.json_stringify(value)? {
        Some(text) => text.to_string(),
        None => Ok("null".to_owned()),
    }
}

/// Puts the natives into a context.
pub(super) fn install<'js>(ctx: &Ctx<'js>, emission: &Rc<Emission>) -> Result<()> {
    let mut options = rquickjs::context::EvalOptions::default();
    options.strict = false;
    ctx.eval_with_options::<(), _>(PRELUDE, options)?;
    let plain: Function<'js> = ctx.eval(PLAIN)?;
    *emission.plain.borrow_mut() = Some(Persistent::save(ctx, plain));
    let globals = ctx.globals();
    let shared = Rc::clone(emission);
    let emit = move |ctx: Ctx<'js>, key: Opt<Value<'js>>, value: Opt<Value<'js>>, _more: Rest<Value<'js>>| {
        let or_undefined =
            |value: Opt<Value<'js>>| value.0.unwrap_or_else(|| Value::new_undefined(ctx.clone()));
        shared.emit(&ctx, or_undefined(key), or_undefined(value))
    };
    globals.set("emit", Function::new(ctx.clone(), emit)?.with_name("emit")?)?;
    let shared = Rc::clone(emission);
    let log = move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| shared.log(&ctx, arguments.0.first());
    globals.set("log", Function::new(ctx.clone(), log)?.with_name("log")?)?;
    let decode = move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| decode_base64(&ctx, arguments.0.first());
    globals.set("decodeBase64", Function::new(ctx.clone(), decode)?.with_name("decodeBase64")?)
}

/// The bytes that a text in base64 means.
fn decode_base64<'js>(ctx: &Ctx<'js>, text: Option<&Value<'js>>) -> Result<Vec<u8>> {
    let throw = |text: &str| match rquickjs::String::from_str(ctx.clone(), text) {
        Ok(text) => ctx.throw(text.into_value()),
        Err(error) => error,
    };
    let Some(text) = text.and_then(Value::as_string) else {
        return Err(throw("Input is not a string"));
    };
    STANDARD.decode(text.to_string()?).map_err(|_| throw("Invalid base64 source."))
}

/// A string in base64.
pub(super) fn base64_value<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    rquickjs::String::from_str(ctx.clone(), &STANDARD.encode(bytes)).map(rquickjs::String::into_value)
}

/// The value of a JSON text.
pub(super) fn parse<'js>(ctx: &Ctx<'js>, text: &str) -> Result<Value<'js>> {
    ctx.json_parse(text.as_bytes())
}
