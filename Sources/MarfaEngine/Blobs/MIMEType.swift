import CMagic
import Glibc

/// A file's MIME type: by its name where that says enough (the system's own table, mime.types(5)), by its content where
/// it does not (libmagic).
enum MIMEType {
  /// What is said of bytes nobody recognises.
  static let unknown = "application/octet-stream"

  /// The type of the file at `path` under the name a person gave it.
  static func of(_ name: [UInt8], path: String) -> String {
    byName(name) ?? byContent(path) ?? unknown
  }

  /// By the extension, `nil` when the table has none such.
  static func byName(_ name: [UInt8]) -> String? {
    guard let dot = name.lastIndex(of: 0x2e), dot > 0, name.count - dot <= 16 else { return nil }
    let lowered = name[(dot + 1)...].map { $0 >= 0x41 && $0 <= 0x5a ? $0 | 0x20 : $0 }
    return extensions[String(decoding: lowered, as: UTF8.self)]
  }

  /// By the first bytes; `nil` when they cannot be read.
  static func byContent(_ path: String) -> String? {
    guard let start = try? Descriptor.open(path, O_RDONLY).prefix(ContentSniff.length) else { return nil }
    switch ContentSniff.of(start) {
    case .plainText: return "text/plain"
    case .nothingKnown: return unknown
    case .worthAsking: break
    }
    return cookie.withLock { cookie in
      guard let cookie, let answer = magic_file(cookie, path) else { return nil }
      let type = String(cString: answer)
      // It answers such as "inode/x-empty" and, on trouble, sentences.
      return type.contains("/") && !type.contains(" ") && !type.hasPrefix("inode/") ? type : nil
    }
  }

  /// libmagic's database is not for two threads at once. Loaded at the first file whose name says too little.
  private static let cookie: Lock<magic_t?> = {
    let cookie = magic_open(MAGIC_MIME_TYPE | MAGIC_SYMLINK | MAGIC_NO_CHECK_COMPRESS | MAGIC_NO_CHECK_ELF)
    if let cookie, magic_load(cookie, nil) != 0 {
      Log.warning("libmagic has no database: files without a telling name are \(unknown)")
      magic_close(cookie)
      return Lock(.leaf, nil)
    }
    return Lock(.leaf, cookie)
  }()

  private static let extensions: [String: String] = {
    var table = builtIn
    guard let file = try? Descriptor.open("/etc/mime.types", O_RDONLY), let bytes = try? file.prefix(4 << 20) else {
      return table
    }
    for line in bytes.split(separator: 0x0a) where line.first != UInt8(ascii: "#") {
      let words = line.split { $0 == 0x20 || $0 == 0x09 }
      guard words.count > 1 else { continue }
      let type = String(decoding: words[0], as: UTF8.self)
      for word in words.dropFirst() {
        let name = String(decoding: word, as: UTF8.self).lowercased()
        if table[name] == nil { table[name] = type }
      }
    }
    return table
  }()

  /// What people attach most, for a system without the table, and where the table is not what a desktop says.
  private static let builtIn: [String: String] = [
    "txt": "text/plain", "md": "text/markdown", "html": "text/html", "htm": "text/html", "css": "text/css",
    "csv": "text/csv", "js": "text/javascript", "json": "application/json", "xml": "application/xml",
    "pdf": "application/pdf", "zip": "application/zip", "gz": "application/gzip", "tar": "application/x-tar",
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "svg": "image/svg+xml", "heic": "image/heic", "tif": "image/tiff", "tiff": "image/tiff", "mp3": "audio/mpeg",
    "flac": "audio/flac", "ogg": "audio/ogg", "opus": "audio/ogg", "wav": "audio/x-wav", "m4a": "audio/mp4",
    "mp4": "video/mp4", "mkv": "video/x-matroska", "webm": "video/webm", "mov": "video/quicktime",
    "avi": "video/x-msvideo", "odt": "application/vnd.oasis.opendocument.text",
    "ods": "application/vnd.oasis.opendocument.spreadsheet", "odp": "application/vnd.oasis.opendocument.presentation",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", "epub": "application/epub+zip",
  ]
}
