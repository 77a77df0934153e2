// swift-tools-version: 6.0
import PackageDescription

/// The tool's default for every target: Swift 6 language mode, no implicit existentials. Warnings are errors in
/// `Scripts/test`, not here, so that a newer compiler's new warning does not stop a person from building.
let settings: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("ExistentialAny"),
]

let package = Package(
  name: "marfa-mount",
  products: [
    .library(name: "MarfaEngine", targets: ["MarfaEngine"]),
    .library(name: "MarfaFS", targets: ["MarfaFS"]),
    .executable(name: "marfa-mount", targets: ["marfa-mount"]),
  ],
  targets: [
    .systemLibrary(name: "CFuse3", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CMagic", pkgConfig: "libmagic", providers: [.apt(["libmagic-dev"])]),
    .systemLibrary(name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CMicroHTTPD", pkgConfig: "libmicrohttpd", providers: [.apt(["libmicrohttpd-dev"])]),
    .systemLibrary(name: "CLinux"),
    .target(
      name: "MarfaEngine", dependencies: ["CSQLite", "COpenSSL", "CMagic", "CCurl", "CLinux"],
      swiftSettings: settings),
    .target(name: "MarfaFS", dependencies: ["MarfaEngine", "CFuse3", "CLinux"], swiftSettings: settings),
    .executableTarget(name: "marfa-mount", dependencies: ["MarfaFS", "MarfaEngine"], swiftSettings: settings),
    .target(
      name: "ContractServer", dependencies: ["MarfaEngine", "CMicroHTTPD", "CSQLite", "CLinux"],
      path: "Tests/ContractServer", swiftSettings: settings),
    .executableTarget(
      name: "marfa-contract-server", dependencies: ["ContractServer", "MarfaEngine"],
      path: "Tests/ContractServerCommand", swiftSettings: settings),
    .testTarget(name: "MarfaEngineTests", dependencies: ["MarfaEngine", "ContractServer"], swiftSettings: settings),
    .testTarget(
      name: "MarfaFSTests", dependencies: ["MarfaFS", "MarfaEngine", "ContractServer"], swiftSettings: settings),
    .testTarget(name: "MountTests", dependencies: ["MarfaEngine", "ContractServer"], swiftSettings: settings),
  ]
)
